//! `GpuClusteringScore` of hkust-adsl/kubernetes-scheduler-simulator.

use tessera_placement::packing::{Cards, Demand, MAX_CARDS, Node};

use super::scored::{Cost, fullest_cards, left};

/// Nodes with pods requesting the same number of cards: first nodes with no other pods, then mixed nodes, then empty nodes.
#[derive(Debug)]
pub struct Clustering {
    /// For each node, the number of pods by requested cards, with shares at index 0.
    pods: Vec<[u32; MAX_CARDS + 1]>,
}

impl Clustering {
    /// For this number of empty nodes.
    pub fn new(nodes: usize) -> Self {
        Self { pods: vec![[0; MAX_CARDS + 1]; nodes] }
    }
}

/// The pod's group: its number of cards; `None` without cards.
fn group(demand: &Demand) -> Option<usize> {
    match demand.cards() {
        0 => None,
        _ if demand.is_share() => Some(0),
        cards => Some(usize::from(cards)),
    }
}

impl Cost for Clustering {
    fn cost(&self, index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let cards = fullest_cards(node, demand);
        let Some(group) = group(demand) else { return (0.0, cards) };
        let groups = self.pods[index].iter().filter(|count| **count > 0).count();
        let base = match (self.pods[index][group] > 0, groups) {
            (true, 1) => 75.0,
            (true, _) => 50.0,
            (false, 0) => 25.0,
            (false, _) => 0.0,
        };
        // Truncated to integers as in the published code.
        (-(base + (25.0 * (1.0 - left(node)[1])).trunc()), cards)
    }

    fn placed(&mut self, index: usize, demand: &Demand) {
        if let Some(group) = group(demand) {
            self.pods[index][group] += 1;
        }
    }

    fn departed(&mut self, index: usize, demand: &Demand) {
        if let Some(group) = group(demand) {
            self.pods[index][group] -= 1;
        }
    }
}
