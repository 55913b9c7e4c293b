//! HAMi's scheduler with `binpack` for nodes and devices. HAMi's extender chooses node and card and leaves kube-scheduler only
//! the chosen node. HAMi does not touch pods without cards.

use tessera_placement::packing::{Cards, Demand, Node};

use super::scored::{Cost, fullest_cards};

/// Most pods of a card by default (`deviceSplitCount`). The number affects only the score; not refusing any pod
/// because of the limit is to HAMi's advantage.
const PODS_OF_CARD: usize = 10;

/// The most used node, by the sum of the used fractions of pods, cores and memory of its cards.
#[derive(Debug)]
pub struct Used {
    /// Users of each node's cards.
    pods: Vec<u32>,
}

impl Used {
    /// For this number of empty nodes.
    pub fn new(nodes: usize) -> Self {
        Self { pods: vec![0; nodes] }
    }
}

impl Cost for Used {
    fn cost(&self, index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let cards = node.cards().len();
        let pods = f64::from(self.pods[index]) / (PODS_OF_CARD * cards) as f64;
        // A thousandth of a card is a thousandth of its memory and of its cores.
        let used = 1.0 - node.free() as f64 / (1000 * cards) as f64;
        (-(pods + 2.0 * used), fullest_cards(node, demand))
    }

    fn placed(&mut self, index: usize, demand: &Demand) {
        self.pods[index] += u32::from(demand.cards());
    }

    fn departed(&mut self, index: usize, demand: &Demand) {
        self.pods[index] -= u32::from(demand.cards());
    }
}
