//! Choice of whole cards of a machine to take together.
//!
//! The key and its order were found by simulation (single machines and clusters of sixteen, loads of 85 and 95 %). On a DGX-1V, the
//! chosen sets have 0.946 of the bandwidth of the best sets of the empty machine. A score of pairs as a tie-break after the
//! bandwidth reaches 0.922, the remainder before the bandwidth 0.793. `cargo xtask bench sets` compares this with other rules.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use tessera_api::NodeReport;
use tessera_inventory::Topology;
use tessera_inventory::topology::{CardSet, Likeness, Nested};

/// The cards of one machine, prepared for comparing sets.
#[derive(Clone, Debug)]
pub struct CardSets {
    topology: Topology,
    nested: Arc<Nested>,
}

/// Cache of the best quads and pairs, shared by machines of one kind: finding them is the slowest step.
#[derive(Debug, Default)]
pub struct KnownMachines {
    nested: HashMap<Likeness, Arc<Nested>>,
}

/// Limit of cached kinds of machines, more than any cluster has. Needed because reports are text others may write.
const MOST_MACHINES: usize = 1_024;

/// Cost of a set of cards; the least is best. Fields in the order of their weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardsCost {
    /// Bandwidth of the best ring through the set, MB/s.
    pub ring: Reverse<u64>,
    /// Number of NUMA nodes spanned; cards without a known node count as on one.
    pub numa_nodes: usize,
    /// Breakage of the machine's best quads and pairs: 1000 for each free quad taken in part, 100 for each quad touched; 10 and 1
    /// for pairs.
    pub buddies: u64,
    /// See [`Topology::weight`].
    pub weight: Reverse<u64>,
    /// Positions by PCI address.
    pub cards: Vec<usize>,
}

impl KnownMachines {
    fn nested(&mut self, topology: &Topology) -> Arc<Nested> {
        let likeness = topology.likeness();
        if self.nested.len() >= MOST_MACHINES && !self.nested.contains_key(&likeness) {
            self.nested.clear();
        }
        self.nested.entry(likeness).or_insert_with(|| Arc::new(topology.nested())).clone()
    }
}

impl CardSets {
    /// The cards of a report; `None` for more cards than any machine has.
    #[must_use]
    pub fn of_report(report: &NodeReport) -> Option<Self> {
        Self::of_known(report, &mut KnownMachines::default())
    }

    /// As [`Self::of_report`], using the cache of known machines.
    #[must_use]
    pub fn of_known(report: &NodeReport, known: &mut KnownMachines) -> Option<Self> {
        let topology = Topology::from_report(report)?;
        Some(Self { nested: known.nested(&topology), topology })
    }

    /// Links between the cards.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Cost of taking `set`, a subset of `free`.
    #[must_use]
    pub fn cost(&self, set: CardSet, free: CardSet) -> CardsCost {
        let mut numa_nodes: Vec<Option<u32>> = set.iter().map(|card| self.topology.numa_node(card)).collect();
        numa_nodes.sort_unstable();
        numa_nodes.dedup();
        CardsCost {
            ring: Reverse(self.topology.ring(set)),
            numa_nodes: numa_nodes.len(),
            buddies: self.buddies(set, free),
            weight: Reverse(self.topology.weight(set)),
            cards: set.iter().collect(),
        }
    }

    fn buddies(&self, set: CardSet, free: CardSet) -> u64 {
        let of = |groups: &[CardSet], touched: u64, broken: u64| -> u64 {
            let touches = groups.iter().filter(|group| !(**group & set).is_empty());
            touches
                .map(|group| {
                    let is_broken = free.includes(*group) && !set.includes(*group);
                    touched + if is_broken { broken } else { 0 }
                })
                .sum()
        };
        of(&self.nested.quads, 100, 1_000) + of(&self.nested.pairs, 1, 10)
    }
}

/// In MB/s; more than any ring has.
const BEST_RING: u64 = 2_000_000;

/// Class of a ring's bandwidth, comparable between machines: 0 for the best possible, each further class for a tenth less. Within
/// one class, a better ring does not justify opening an empty node.
#[must_use]
pub fn ring_class(megabytes_per_second: u64) -> u16 {
    let mut class = 0;
    let mut reached = BEST_RING;
    while reached > megabytes_per_second.max(1) {
        reached -= (reached / 10).max(1);
        class += 1;
    }
    class
}

#[cfg(test)]
mod tests {
    use tessera_api::PciBusId;

    use super::*;

    /// Four cards, two of them linked.
    fn report(first_bus: u8, linked: [u8; 2]) -> NodeReport {
        let card = |place: u8| PciBusId::new(0, first_bus + place, 0, 0).unwrap();
        NodeReport {
            cards: (0..4).map(|place| (card(place), Default::default())).collect(),
            links: vec![(card(linked[0]), card(linked[1]), 4)],
            ..NodeReport::default()
        }
    }

    #[test]
    fn machines_that_are_alike_share_what_takes_long_to_find() {
        let mut known = KnownMachines::default();
        let mut sets = |report| CardSets::of_known(&report, &mut known).unwrap();
        let [one, alike, other] = [report(1, [0, 3]), report(7, [0, 3]), report(1, [0, 1])].map(&mut sets);
        assert!(Arc::ptr_eq(&one.nested, &alike.nested) && one.topology() != alike.topology());
        assert_eq!(*other.nested, other.topology().nested());
        assert_ne!(one.nested, other.nested);
    }

    #[test]
    fn classes_are_a_tenth_apart() {
        // 18 links of NVLink 5.0 and 4.0, 12 of 3.0, two bridges, PCIe near and far, nothing.
        let rings = [956_250, 478_116, 309_372, 100_000, 24_000, 10_000, 0];
        let classes = rings.map(ring_class);
        assert!(classes.is_sorted() && classes[0] > 0 && classes[6] < 200, "{classes:?}");
        for ring in rings.into_iter().filter(|ring| *ring > 0) {
            let tenth_less = ring_class(ring - ring / 10);
            assert!((0..=1).contains(&(tenth_less - ring_class(ring))), "{ring}: {tenth_less}");
            assert!(ring_class(ring - ring / 5) - ring_class(ring) >= 1, "{ring}");
        }
    }
}
