//! `GpuPackingScore` of hkust-adsl/kubernetes-scheduler-simulator.

use tessera_placement::packing::{Cards, Demand, Node, WHOLE};

use super::scored::{Cost, fullest_cards};

/// Cards in use before free cards of nodes in use, and free cards of nodes in use before empty nodes.
#[derive(Debug)]
pub struct GpuPacking;

impl Cost for GpuPacking {
    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let cards = fullest_cards(node, demand);
        if demand.cards() == 0 {
            return (0.0, cards);
        }
        let all = node.cards().len();
        let whole = cards.iter().filter(|card| node.cards()[*card] == WHOLE).count();
        let score = if usize::from(node.whole_cards()) == all {
            (33 - all as i64).max(all as i64)
        } else if whole > 0 {
            (50 - whole as i64).max(33)
        } else {
            let free: i64 = cards.iter().map(|card| i64::from(node.cards()[card]) / 10).sum();
            (100 - free / 10).max(50)
        };
        (-(score as f64), cards)
    }
}
