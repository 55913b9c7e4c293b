//! Random fit.

use tessera_placement::packing::{Cards, Demand, Node, Place};

use super::Policy;
use crate::Random;

/// A random fitting node, and for a share a random fitting card.
#[derive(Debug)]
pub struct RandomFit;

impl Policy for RandomFit {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        let fitting: Vec<usize> = (0..nodes.len()).filter(|node| nodes[*node].fits(demand)).collect();
        if fitting.is_empty() {
            return None;
        }
        let node = fitting[random.below(fitting.len())];
        let mut cards = nodes[node].first_cards(demand);
        if demand.is_share() {
            let free = nodes[node].cards().iter().enumerate();
            let of: Vec<usize> =
                free.filter(|(_, free)| **free >= demand.thousandths()).map(|(card, _)| card).collect();
            cards = Cards::one(of[random.below(of.len())]);
        }
        Some(Place { node, cards })
    }
}
