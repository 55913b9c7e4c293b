//! The connections between the cards of one machine, its groups of cards, and the order of publication.
//!
//! The rule was found and measured by simulation over twenty machine types; the tests hold it to those results. In
//! short: cards sort by PCI address; the value of a set of cards is the bandwidth of the best ring through it; the
//! machine is divided into the best nested pairs and quads ([`Groups`]); in the list of devices, neighbours on NVLink
//! are next to each other. Integers only, every tie goes to the lowest PCI address.

mod align;
mod card_set;
mod domain;
mod groups;
mod link_groups;
mod links;
mod order;
mod report;
mod ring;
mod square;

pub use align::Nested;
pub use card_set::CardSet;
pub use groups::{Group, Groups};

use tessera_api::PciBusId;

use crate::machine::Machine;
use square::Square;

/// The most cards for which groups are computed. More are published in PCI order, without groups.
pub const MAX_CARDS: usize = 64;

/// The connections between the cards of one machine. Positions are those of [`Topology::cards`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    cards: Vec<PciBusId>,
    /// NVLinks between two cards; through switches, the number of the card with fewer links.
    links: Square<u32>,
    /// Whether the links between two cards go through NVSwitches, so each card shares its links among all peers.
    switched: Square<bool>,
    /// Closeness on PCIe, 60 (one board) to 10 (different sockets).
    closeness: Square<u32>,
    /// Bandwidth of one NVLink in one direction, MB/s.
    link_rate: u32,
    numa_nodes: Vec<Option<u32>>,
    /// The fabric domain of each card, where it has one.
    fabric_domains: Vec<Option<String>>,
}

/// The connections of a machine without addresses and fabric: equal for machines alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Likeness(Topology);

impl Topology {
    /// The connections between [`Machine::cards_by_address`].
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        links::read(machine)
    }

    /// The cards by PCI address, each once.
    #[must_use]
    pub fn cards(&self) -> &[PciBusId] {
        &self.cards
    }

    /// The set of these cards; cards outside the machine, or behind the first [`MAX_CARDS`], are left out.
    #[must_use]
    pub fn set(&self, cards: impl IntoIterator<Item = PciBusId>) -> CardSet {
        let position = |card: PciBusId| self.cards.binary_search(&card).ok();
        let known = cards.into_iter().filter_map(position).filter(|position| *position < MAX_CARDS);
        known.map(CardSet::single).collect()
    }

    /// The NVLinks between the cards at two positions; 0 without a path over NVLink.
    #[must_use]
    pub fn links(&self, one: usize, other: usize) -> u32 {
        *self.links.get(one, other)
    }

    /// How close the cards at two positions are on PCIe, in the terms of `nvidia-smi topo -m`: `PIX`, `PXB`,
    /// `PHB`, `NODE` or `SYS`. Two on one board are `PIX`.
    #[must_use]
    pub fn pcie_level(&self, one: usize, other: usize) -> &'static str {
        match self.closeness.get(one, other) {
            50.. => "PIX",
            40.. => "PXB",
            30.. => "PHB",
            20.. => "NODE",
            _ => "SYS",
        }
    }

    /// The connections common to machines alike, including [`Self::nested`].
    #[must_use]
    pub fn likeness(&self) -> Likeness {
        Likeness(Self { cards: Vec::new(), fabric_domains: Vec::new(), ..self.clone() })
    }

    /// The groups and the order of publication.
    #[must_use]
    pub fn groups(&self) -> Groups {
        groups::find(self)
    }

    /// The best nested pairs and quads: published by [`Self::groups`] for claims with a preference for alignment, except on a
    /// machine whose pairs of cards are all alike. For at most [`MAX_CARDS`] cards; takes milliseconds from twelve on.
    #[must_use]
    pub fn nested(&self) -> Nested {
        align::nested(self)
    }

    /// The NUMA node of the card at a position, if known.
    #[must_use]
    pub fn numa_node(&self, card: usize) -> Option<u32> {
        self.numa_nodes[card]
    }

    /// The NVLink domain of each card: of its fabric, else the lowest PCI address among the cards connected by
    /// NVLink, directly or through others; `None` for a card without a connection.
    #[must_use]
    pub fn nvlink_domains(&self) -> Vec<Option<String>> {
        domain::find(self)
    }

    /// Whether all pairs of cards are connected alike.
    fn is_uniform(&self) -> bool {
        let mut pairs = self.all().subsets(2).map(|pair| {
            let (one, other) = pair.ends();
            (self.links(one, other), *self.switched.get(one, other), *self.closeness.get(one, other))
        });
        let first = pairs.next();
        pairs.all(|pair| Some(pair) == first)
    }

    fn all(&self) -> CardSet {
        CardSet::first(self.cards.len())
    }
}
