//! KAI-Scheduler's plugins `nodeplacement`, `gpusharingorder` and `gpupack` with the strategy `binpack`, its default.

use tessera_placement::packing::{Cards, Demand, Node, WHOLE};

use super::scored::{Cost, fullest_cards};

/// The node with the fewest free cards. For shares, nodes with a shared card with room come first. Without cards, the node with
/// the least free CPU. On the node, the most used card.
#[derive(Debug)]
pub struct Kai;

/// Weight of a shared card with room (`GpuSharing` in KAI's `scores`, where density counts up to 9): more than any number
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
