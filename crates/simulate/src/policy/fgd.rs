//! FGD: fragmentation gradient descent (Weng et al., USENIX ATC 2023), as in `FGDScore` of
//! hkust-adsl/kubernetes-scheduler-simulator.
//!
//! There, ties go to the node that comes first in an order that is random but the same throughout a run, which packs: with
//! random ties it would be worse than best fit. The nodes here are in such an order. With best fit among equals it is as good on
//! some traces, and a little worse on others.

use tessera_packing::{Cards, Demand, Mix, Node, Place, logistic};

use super::Policy;
use super::best_fit::rest;
use super::scored::{Cost, Scored, fullest_cards};
use crate::{Random, TypicalPods};

/// Who is taken among nodes with the same score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The first one.
    First,
    /// The one that has least left.
    BestFit,
}

/// The node on which least fragments come to be.
#[derive(Debug)]
struct Gradient {
    typical: TypicalPods,
    ties: Ties,
}

impl Cost for Gradient {
    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let before = self.typical.fragments(node);
        let score = |cards: Cards| {
            let mut after = node.clone();
            // Memory does not count in fragments, and may not suffice.
            let fits = after.take(&demand.without_memory(), cards);
            debug_assert!(fits);
            (logistic((before - self.typical.fragments(&after)) / 1000.0) * 100.0).trunc()
        };
        let mut best = (f64::NEG_INFINITY, Cards::NONE);
        if demand.is_share() {
            for (card, free) in node.cards().iter().enumerate() {
                if *free >= demand.thousandths() && !node.cards()[..card].contains(free) {
                    let score = score(Cards::one(card));
                    if score > best.0 {
                        best = (score, Cards::one(card));
                    }
                }
            }
        } else {
            let cards = fullest_cards(node, demand);
            best = (score(cards), cards);
        }
        let tie = match self.ties {
            Ties::First => 0.0,
            // Less than one step of the score.
            Ties::BestFit => rest(node, demand) / 2.0,
        };
        (-best.0 + tie, best.1)
    }
}

/// FGD.
#[derive(Debug)]
pub struct Fgd {
    scored: Scored<Gradient>,
    /// Without it the mix is known.
    learning: Option<Learning>,
}

#[derive(Debug)]
struct Learning {
    mix: Mix,
    arrivals: u64,
    next: u64,
}

/// Arrivals before the mix is used for the first time; then after twice as many each, as ours does.
const FIRST: u64 = 50;

impl Fgd {
    /// With this mix.
    pub fn knowing(typical: TypicalPods, ties: Ties, nodes: usize) -> Self {
        Self { scored: Scored::new(Gradient { typical, ties }, nodes), learning: None }
    }

    /// With the mix that it sees.
    pub fn learning(nodes: usize) -> Self {
        let learning = Learning { mix: Mix::default(), arrivals: 0, next: FIRST };
        let gradient = Gradient { typical: TypicalPods::default(), ties: Ties::First };
        Self { scored: Scored::new(gradient, nodes), learning: Some(learning) }
    }
}

impl Policy for Fgd {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        if let Some(learning) = &mut self.learning {
            if learning.arrivals == learning.next {
                learning.next *= 2;
                self.scored.cost.typical = TypicalPods::new(learning.mix.iter());
                self.scored.forget_all();
            }
            learning.arrivals += 1;
            learning.mix.arrived(demand);
        }
        self.scored.choose(nodes, demand, random)
    }

    fn placed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        self.scored.placed(nodes, place, demand);
    }

    fn departed(&mut self, nodes: &[Node], place: &Place, demand: &Demand) {
        self.scored.departed(nodes, place, demand);
    }
}
