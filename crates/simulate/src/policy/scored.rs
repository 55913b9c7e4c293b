//! Policies by which each node has a score of its own, whatever the others are like.

use tessera_packing::{Cards, CostTable, Demand, Node, Place, WHOLE};

use super::Policy;
use crate::Random;

/// What a node costs; the first node of those that cost least is taken.
pub trait Cost {
    /// What it costs to place a demand that fits, and the cards that it gets. `index` is the node's.
    fn cost(&self, index: usize, node: &Node, demand: &Demand) -> (f64, Cards);

    /// A pod came to the node.
    fn placed(&mut self, index: usize, demand: &Demand) {
        let _ = (index, demand);
    }

    /// A pod left the node.
    fn departed(&mut self, index: usize, demand: &Demand) {
        let _ = (index, demand);
    }
}

/// A policy by such costs.
#[derive(Debug)]
pub struct Scored<C> {
    /// What nodes cost.
    pub cost: C,
    costs: CostTable,
}

impl<C> Scored<C> {
    /// For so many nodes.
    pub fn new(cost: C, nodes: usize) -> Self {
        Self { cost, costs: CostTable::new(nodes) }
    }

    /// What costs are computed from changed.
    pub fn forget_all(&mut self) {
        self.costs.forget_all();
    }
}

impl<C: Cost> Policy for Scored<C> {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, _random: &mut Random) -> Option<Place> {
        let Self { cost, costs } = self;
        costs.cheapest(nodes, demand, |index, node| cost.cost(index, node, demand))
    }

    fn placed(&mut self, _nodes: &[Node], place: &Place, demand: &Demand) {
        self.cost.placed(place.node, demand);
        self.costs.forget_node(place.node);
    }

    fn departed(&mut self, _nodes: &[Node], place: &Place, demand: &Demand) {
        self.cost.departed(place.node, demand);
        self.costs.forget_node(place.node);
    }
}

/// The fullest card that a share fits on, the first among equals; for whole cards the first ones.
pub fn fullest_cards(node: &Node, demand: &Demand) -> Cards {
    if !demand.is_share() {
        return node.first_cards(demand);
    }
    let fitting = node.cards().iter().enumerate().filter(|(_, free)| **free >= demand.thousandths());
    fitting.min_by_key(|(_, free)| **free).map_or(Cards::NONE, |(card, _)| Cards::one(card))
}

/// CPU of the largest node of openb in thousandths of a core, by which published scores are scaled.
const MOST_CPU: f64 = 128_000.0;

/// Thousandths of the cards of the largest node of openb.
const MOST_CARDS: f64 = 8.0 * WHOLE as f64;

/// CPU and cards left on a node, as parts of the largest node.
pub fn left(node: &Node) -> [f64; 2] {
    [node.cpu_milli() as f64 / MOST_CPU, node.free() as f64 / MOST_CARDS]
}

/// CPU and cards asked for, in the same way.
pub fn asked(demand: &Demand) -> [f64; 2] {
    [demand.cpu_milli() as f64 / MOST_CPU, demand.total() as f64 / MOST_CARDS]
}
