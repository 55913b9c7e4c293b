//! `BestFitScore` of hkust-adsl/kubernetes-scheduler-simulator.

use tessera_placement::packing::{Cards, Demand, Node};

use super::scored::{Cost, asked, fullest_cards, left};

/// The node with the least CPU and cards left, in hundredths of the largest node.
#[derive(Debug)]
pub struct BestFit;

/// Room left after the demand, from 0 to 1.
pub fn rest(node: &Node, demand: &Demand) -> f64 {
    let (left, asked) = (left(node), asked(demand));
    ((left[0] - asked[0]) + (left[1] - asked[1])) / 2.0
}

impl Cost for BestFit {
    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let score = ((1.0 - rest(node, demand)) * 100.0).trunc();
        (-score, fullest_cards(node, demand))
    }
}
