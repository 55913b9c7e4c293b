//! First fit by index.

use tessera_placement::packing::{Demand, Node, Place};

use super::Policy;
use crate::Random;

/// The first fitting node, and its first fitting cards.
#[derive(Debug)]
pub struct FirstFit;

impl Policy for FirstFit {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, _random: &mut Random) -> Option<Place> {
        let node = nodes.iter().position(|node| node.fits(demand))?;
        Some(Place { node, cards: nodes[node].first_cards(demand) })
    }
}
