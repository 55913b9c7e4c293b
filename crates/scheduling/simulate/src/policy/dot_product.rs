//! `DotProductScore` of hkust-adsl/kubernetes-scheduler-simulator, with all cards of a node as one dimension (`merge`) and
//! scaled by the largest node (`max`), as in the published results. The heuristics are Tetris' (Grandl et al., SIGCOMM 2014),
//! reversed: the less aligned free room and demand are, the better.

use tessera_placement::packing::{Cards, Demand, Node};

use super::scored::{Cost, asked, fullest_cards, left};

/// The node whose free room is least aligned with the demand.
#[derive(Debug)]
pub struct DotProduct;

impl Cost for DotProduct {
    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let (left, asked) = (left(node), asked(demand));
        let product = (left[0] * asked[0] + left[1] * asked[1]) / 2.0;
        (-((1.0 - product) * 100.0).trunc(), fullest_cards(node, demand))
    }
}
