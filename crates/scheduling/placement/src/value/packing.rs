//! Node-value packing over the fleet: each node's room for the demand, for whole cards, shares and partitions alike.
//!
//! [`crate::packing`] has the rule and learns the mix; this module converts nodes of the fleet to plain numbers. A node counts as
//! one for each model of its cards, each with all of its CPU; so does each further group of sixteen cards.

use std::collections::HashMap;

use crate::packing::{Demand, Learned, MAX_CARDS, MAX_MODELS, Node, WHOLE};
use tessera_api::{PciBusId, ProfileSpelling};
use tessera_cluster::usage::Room;

/// Cost of a pod on a node, in billionths of a card: smaller differences count as equal.
pub type Cost = i64;

/// Limit of cached shapes of demand.
const MOST_SHAPES: usize = 4096;

/// The learned demand, and the known models of cards.
#[derive(Debug)]
pub struct Packing {
    learned: Learned,
    /// Product names, by model number.
    models: Vec<String>,
    /// Incremented when node values may have changed although the nodes did not.
    version: u64,
    /// Cached requests, by shape text.
    shapes: HashMap<String, Asked>,
}

/// Requests of pods of one shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// One demand, or one for each card if a pod asks for parts of several cards.
    pub demands: Vec<Demand>,
    /// Requested profiles of partitions.
    pub partitions: Vec<ProfileSpelling>,
}

impl Default for Packing {
    fn default() -> Self {
        let learned = Learned::new(std::iter::empty());
        Self { learned, models: Vec::new(), version: 0, shapes: HashMap::new() }
    }
}

/// A node in plain numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlainNode {
    /// Its cards, in the order of `parts`.
    cards: Vec<PciBusId>,
    parts: Vec<Node>,
    value: f64,
}

/// A card in plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainCard {
    /// Its address.
    pub address: PciBusId,
    /// See [`Packing::model`].
    pub model: u8,
    /// Thousandths available for allocation.
    pub free: u16,
}

impl PlainNode {
    /// Without cards.
    pub const NONE: Self = Self { cards: Vec::new(), parts: Vec::new(), value: 0.0 };

    /// Its cards, in the order used by [`Packing::cost`].
    pub fn cards(&self) -> impl Iterator<Item = PciBusId> {
        self.cards.iter().copied()
    }

    /// Free thousandths of each card.
    pub fn free(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().flat_map(Node::cards).copied()
    }

    /// Models of its cards.
    pub fn models(&self) -> impl Iterator<Item = u8> {
        self.parts.iter().map(Node::model)
    }

    /// The parts of all nodes.
    pub fn parts_of<'n>(
        nodes: impl Iterator<Item = &'n Self> + Clone,
    ) -> impl Iterator<Item = &'n Node> + Clone {
        nodes.flat_map(|node| &node.parts)
    }

    /// Recomputes the value, after the learned demand changed.
    pub fn revalue(&mut self, packing: &Packing) {
        self.value = packing.value(&self.parts);
    }
}

impl Packing {
    /// Number of a model of cards. Beyond the limit, all further models share the last number.
    pub fn model(&mut self, product_name: &str) -> u8 {
        let known = self.models.iter().position(|model| model == product_name);
        let number = known.unwrap_or_else(|| {
            if self.models.len() < usize::from(MAX_MODELS) {
                self.models.push(product_name.to_owned());
                self.shapes.clear();
            }
            self.models.len() - 1
        });
        // Below MAX_MODELS.
        number as u8
    }

    /// Number of known models.
    pub fn models(&self) -> usize {
        self.models.len()
    }

    /// A node with these cards, and with CPU and memory as (total, free).
    pub fn node(&mut self, cards: &[PlainCard], (all, free): (Room, Room)) -> PlainNode {
        let mut groups: Vec<(u8, Vec<&PlainCard>)> = Vec::new();
        for card in cards {
            let group = groups.iter_mut().find(|(model, of)| *model == card.model && of.len() < MAX_CARDS);
            match group {
                Some((_, of)) => of.push(card),
                None => groups.push((card.model, vec![card])),
            }
        }
        let mut node = PlainNode::default();
        // Totals are rounded up to whole cores and GiB, so that nodes of one kind match whatever their kubelets reserve.
        let cpu_milli = (free.cpu_milli, all.cpu_milli.div_ceil(1000).saturating_mul(1000));
        let memory_mib = (free.memory_mib, all.memory_mib.div_ceil(1024).saturating_mul(1024));
        for (model, of) in groups {
            let free: Vec<u16> = of.iter().map(|card| card.free).collect();
            // Cannot fail: one to MAX_CARDS cards, and a number returned by `model`.
            let Ok(part) = Node::in_use(model, &free, cpu_milli, memory_mib) else { continue };
            self.learned.met(&part);
            node.cards.extend(of.iter().map(|card| card.address));
            node.parts.push(part);
        }
        node.value = self.value(&node.parts);
        node
    }

    fn value(&self, parts: &[Node]) -> f64 {
        parts.iter().map(|part| self.learned.value(part)).sum()
    }

    /// Cost of leaving only `free` of the node's cards, in the order of [`PlainNode::cards`], and of taking so much of its CPU.
    pub fn cost(&self, node: &PlainNode, free: &[u16], cpu_milli: u64) -> Cost {
        let mut free = free;
        let mut cost = node.value;
        for part in &node.parts {
            let (of_part, others) = free.split_at(free.len().min(part.cards().len()));
            free = others;
            let after = part.with(of_part, part.cpu_milli().saturating_sub(cpu_milli));
            cost = cost - self.learned.value(&after) + self.learned.level(after.free());
        }
        (cost * 1e9).round() as Cost
    }

    /// Version of the values; costs are comparable only within one version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether [`Packing::look`] has work to do.
    pub fn is_due(&self) -> bool {
        self.learned.is_due()
    }

    /// Brings values up to date with the demand. `nodes` are all nodes. Returns whether their values must be recomputed
    /// ([`PlainNode::revalue`]).
    pub fn look<'n>(&mut self, nodes: impl Iterator<Item = &'n PlainNode> + Clone) -> bool {
        let is_changed = self.learned.look(PlainNode::parts_of(nodes));
        self.version += u64::from(is_changed);
        is_changed
    }

    /// Counts a pod's demand.
    pub fn arrived(&mut self, demands: &[Demand]) {
        demands.iter().for_each(|demand| self.learned.arrived(demand));
    }

    /// Counts the departure of a served pod.
    pub fn departed(&mut self) {
        self.learned.departed();
    }

    /// Cached request for this shape text.
    pub fn known(&self, shape: &str) -> Option<Asked> {
        self.shapes.get(shape).cloned()
    }

    /// Caches the request for this shape text.
    pub fn remember(&mut self, shape: String, asked: Asked) {
        if self.shapes.len() >= MOST_SHAPES {
            self.shapes.clear();
        }
        self.shapes.insert(shape, asked);
    }

    /// Drops the cached requests: after a change of nodes or classes, the same texts may mean other requests.
    pub fn forget_shapes(&mut self) {
        self.shapes.clear();
    }
}

/// A node with the cost of shares of its cards.
#[derive(Debug, Clone, Copy)]
pub struct CardValues<'p> {
    /// The learned demand.
    pub packing: &'p Packing,
    /// The node.
    pub node: &'p PlainNode,
    /// CPU taken by the pod: the same on each card, but free parts of cards have less value without CPU.
    pub cpu_milli: u64,
}

impl CardValues<'_> {
    /// Free thousandths of the node's cards after taking `taken` of each, in the order of [`PlainNode::cards`].
    pub fn free_after(&self, taken: impl Fn(&PciBusId) -> u32) -> Box<[u16]> {
        let of =
            |(card, free): (&PciBusId, u16)| free.saturating_sub(u16::try_from(taken(card)).unwrap_or(WHOLE));
        self.node.cards.iter().zip(self.node.free()).map(of).collect()
    }

    /// Cost of taking so many thousandths of these cards.
    pub fn cost(&self, taken: impl Fn(&PciBusId) -> u32) -> Cost {
        self.packing.cost(self.node, &self.free_after(taken), self.cpu_milli)
    }
}
