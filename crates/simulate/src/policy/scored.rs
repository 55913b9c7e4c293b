//! Policies by which each node has a score of its own, whatever the others are like.

use std::fmt::Debug;

use tessera_placement::packing::{Cards, CostTable, Demand, Node, Place, WHOLE};

use super::Policy;
use crate::Random;

/// What a node costs; the first node of those that cost least is taken.
pub(crate) trait Cost: Debug {
    /// A pod asks for this. Returns whether costs that were computed before hold no longer.
    fn arrived(&mut self, demand: &Demand) -> bool {
        let _ = demand;
        false
    }

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
pub(super) struct Scored {
    cost: Box<dyn Cost>,
    costs: CostTable,
}

impl Scored {
    /// For so many nodes.
    pub(super) fn new(cost: Box<dyn Cost>, nodes: usize) -> Self {
        Self { cost, costs: CostTable::new(nodes) }
    }
}

impl Policy for Scored {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, _random: &mut Random) -> Option<Place> {
        let Self { cost, costs } = self;
        if cost.arrived(demand) {
            costs.forget_all();
        }
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
