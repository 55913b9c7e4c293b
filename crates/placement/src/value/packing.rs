//! Node-value packing over the fleet: what each node can still take of the demand, whole cards, shares and partitions alike.
//!
//! [`crate::packing`] has the rule and learns the mix; here nodes of the fleet become its plain numbers. A node counts as one for each
//! model of its cards, each with all of its CPU, and so do cards beyond sixteen.

use std::collections::HashMap;

use crate::packing::{Demand, Learned, MAX_CARDS, MAX_MODELS, Node, WHOLE};
use tessera_api::{PciBusId, ProfileSpelling};
use tessera_cluster::usage::Room;

/// What a pod costs on a node, in billionths of a card: costs closer than that are equal.
pub type Cost = i64;

/// Shapes of demand that are known at once.
const MOST_SHAPES: usize = 4096;

/// What was learnt of the demand, and of which models cards are.
#[derive(Debug)]
pub struct Packing {
    learned: Learned,
    /// Product names, by the number of the model.
    models: Vec<String>,
    /// Changes when values of nodes may be others although the nodes are the same.
    version: u64,
    /// By the text of what is asked for.
    shapes: HashMap<String, Asked>,
}

/// What pods of one shape ask for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// One for each card where these are parts of several.
    pub demands: Vec<Demand>,
    /// Profiles of partitions.
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
    /// Its cards, part by part.
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
    /// Thousandths that can be given out.
    pub free: u16,
}

impl PlainNode {
    /// Without cards.
    pub const NONE: Self = Self { cards: Vec::new(), parts: Vec::new(), value: 0.0 };

    /// Its cards, in the order of [`Packing::cost`].
    pub fn cards(&self) -> impl Iterator<Item = PciBusId> {
        self.cards.iter().copied()
    }

    /// What of them is free.
    pub fn free(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().flat_map(Node::cards).copied()
    }

    /// Models of its cards.
    pub fn models(&self) -> impl Iterator<Item = u8> {
        self.parts.iter().map(Node::model)
    }

    /// Parts of the nodes.
    pub fn parts_of<'n>(
        nodes: impl Iterator<Item = &'n Self> + Clone,
    ) -> impl Iterator<Item = &'n Node> + Clone {
        nodes.flat_map(|node| &node.parts)
    }

    /// What costs are computed from changed.
    pub fn revalue(&mut self, packing: &Packing) {
        self.value = packing.value(&self.parts);
    }
}

impl Packing {
    /// The number of a model of cards. Of too many models the last count as one.
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

    /// How many models there are.
    pub fn models(&self) -> usize {
        self.models.len()
    }

    /// A node with these cards; of CPU and memory what there is in all, and what is free.
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
        // In whole cores and GiB, so that nodes of one kind are known as such whatever their kubelets keep for themselves.
        let cpu_milli = (free.cpu_milli, all.cpu_milli.div_ceil(1000).saturating_mul(1000));
        let memory_mib = (free.memory_mib, all.memory_mib.div_ceil(1024).saturating_mul(1024));
        for (model, of) in groups {
            let free: Vec<u16> = of.iter().map(|card| card.free).collect();
            // Cannot fail: from one to MAX_CARDS cards, and a number of `model`.
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

    /// What it costs that only `free` stays of the node's cards, in the order of [`PlainNode::cards`], and that so much of its CPU is taken.
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

    /// Which of two costs were computed with the same values.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether [`Packing::look`] has anything to do.
    pub fn is_due(&self) -> bool {
        self.learned.is_due()
    }

    /// Brings values up to date with the demand. `nodes` are all there are. Returns whether they are to be computed anew
    /// ([`PlainNode::revalue`]).
    pub fn look<'n>(&mut self, nodes: impl Iterator<Item = &'n PlainNode> + Clone) -> bool {
        let is_changed = self.learned.look(PlainNode::parts_of(nodes));
        self.version += u64::from(is_changed);
        is_changed
    }

    /// A pod asks for this.
    pub fn arrived(&mut self, demands: &[Demand]) {
        demands.iter().for_each(|demand| self.learned.arrived(demand));
    }

    /// A pod left that had what it asked for.
    pub fn departed(&mut self) {
        self.learned.departed();
    }

    /// What is known to be asked for by this text.
    pub fn known(&self, shape: &str) -> Option<Asked> {
        self.shapes.get(shape).cloned()
    }

    /// What is asked for by this text, from now on.
    pub fn remember(&mut self, shape: String, asked: Asked) {
        if self.shapes.len() >= MOST_SHAPES {
            self.shapes.clear();
        }
        self.shapes.insert(shape, asked);
    }

    /// Other nodes or classes may mean other things by the same texts.
    pub fn forget_shapes(&mut self) {
        self.shapes.clear();
    }
}

/// A node with what shares of its cards cost.
#[derive(Debug, Clone, Copy)]
pub struct CardValues<'p> {
    /// What was learnt.
    pub packing: &'p Packing,
    /// The node.
    pub node: &'p PlainNode,
    /// What the pod takes of the CPU: the same of whichever card, but what is left of the cards is worth less without CPU.
    pub cpu_milli: u64,
}

impl CardValues<'_> {
    /// What stays free of the node's cards when so many thousandths of them are taken, in the order of [`PlainNode::cards`].
    pub fn free_after(&self, taken: impl Fn(&PciBusId) -> u32) -> Box<[u16]> {
        let of =
            |(card, free): (&PciBusId, u16)| free.saturating_sub(u16::try_from(taken(card)).unwrap_or(WHOLE));
        self.node.cards.iter().zip(self.node.free()).map(of).collect()
    }

    /// What it costs to take so many thousandths of these cards.
    pub fn cost(&self, taken: impl Fn(&PciBusId) -> u32) -> Cost {
        self.packing.cost(self.node, &self.free_after(taken), self.cpu_milli)
    }
}
