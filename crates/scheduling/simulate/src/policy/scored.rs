//! Policies scoring each node independently of the other nodes.

use std::fmt::Debug;

use tessera_placement::packing::{Cards, CostTable, Demand, Node, Place, WHOLE};

use super::Policy;
use super::kube_scheduler::KubeScheduler;
use crate::Random;

/// Cost of a placement on a node. The first node with the lowest cost is taken.
pub(crate) trait Cost: Debug {
    /// A pod with this demand arrives. Returns whether previously computed costs are outdated.
    fn arrived(&mut self, demand: &Demand) -> bool {
        let _ = demand;
        false
    }

    /// The cost of placing a fitting demand, and the cards for the demand. `index` is the node's.
    fn cost(&self, index: usize, node: &Node, demand: &Demand) -> (f64, Cards);

    /// A pod was placed on the node.
    fn placed(&mut self, index: usize, demand: &Demand) {
        let _ = (index, demand);
    }

    /// A pod left the node.
    fn departed(&mut self, index: usize, demand: &Demand) {
        let _ = (index, demand);
    }
}

/// A policy with such a cost function.
#[derive(Debug)]
pub(super) struct Scored {
    cost: Box<dyn Cost>,
    costs: CostTable,
    /// Places the pods without cards, if the policy does not.
    without_cards: Option<KubeScheduler>,
}

impl Scored {
    /// For this number of nodes.
    pub(super) fn new(cost: Box<dyn Cost>, nodes: usize, without_cards: Option<KubeScheduler>) -> Self {
        Self { cost, costs: CostTable::new(nodes), without_cards }
    }
}

impl Policy for Scored {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        let Self { cost, costs, without_cards } = self;
        if let (0, Some(kube_scheduler)) = (demand.cards(), without_cards) {
            return kube_scheduler.choose(nodes, demand, random);
        }
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

/// The fullest card with room for a share, the first among equals; for whole cards the first free ones.
pub fn fullest_cards(node: &Node, demand: &Demand) -> Cards {
    if !demand.is_share() {
        return node.first_cards(demand);
    }
    let fitting = node.cards().iter().enumerate().filter(|(_, free)| **free >= demand.thousandths());
    fitting.min_by_key(|(_, free)| **free).map_or(Cards::NONE, |(card, _)| Cards::one(card))
}

/// CPU of the largest node of openb in thousandths of a core, the scale of the published scores.
const MOST_CPU: f64 = 128_000.0;

/// Thousandths of cards of the largest node of openb.
const MOST_CARDS: f64 = 8.0 * WHOLE as f64;

/// CPU and cards left on a node, as fractions of the largest node.
pub fn left(node: &Node) -> [f64; 2] {
    [node.cpu_milli() as f64 / MOST_CPU, node.free() as f64 / MOST_CARDS]
}

/// CPU and cards of a demand, as fractions of the largest node.
pub fn asked(demand: &Demand) -> [f64; 2] {
    [demand.cpu_milli() as f64 / MOST_CPU, demand.total() as f64 / MOST_CARDS]
}
