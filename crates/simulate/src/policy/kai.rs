//! KAI-Scheduler's plugins `nodeplacement`, `gpusharingorder` and `gpupack` with the strategy `binpack`, its default.

use tessera_placement::packing::{Cards, Demand, Node, WHOLE};

use super::scored::{Cost, fullest_cards};

/// The node with the fewest free cards, for shares first one with a shared card that has room; without cards the node with the
/// least free CPU. Of its cards the one that is used most.
#[derive(Debug)]
pub struct Kai;

/// What a shared card with room outweighs (`GpuSharing` in its `scores`, where density counts up to 9): more than any number
/// of free cards.
const SHARING: f64 = 1000.0;

impl Cost for Kai {
    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let cards = fullest_cards(node, demand);
        if demand.cards() == 0 {
            return (node.cpu_milli() as f64, cards);
        }
        let is_shared = |card: usize| node.cards()[card] < WHOLE;
        let sharing = if demand.is_share() && cards.iter().any(is_shared) { SHARING } else { 0.0 };
        (f64::from(node.whole_cards()) - sharing, cards)
    }
}
