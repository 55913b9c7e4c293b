//! FGD: fragmentation gradient descent (Weng et al., USENIX ATC 2023), as in `FGDScore` of
//! hkust-adsl/kubernetes-scheduler-simulator.
//!
//! There, ties go to the first node in an order random but constant throughout a run, which packs: with
//! random ties FGD would do worse than best fit. The nodes here are in such an order. With best fit among equals, results are as good
//! on some traces and a little worse on others.

use tessera_placement::packing::{Cards, Demand, Mix, Node, logistic};

use super::best_fit::rest;
use super::scored::{Cost, fullest_cards};
use crate::TypicalPods;

/// Tie-breaker among nodes with the same score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The first node.
    First,
    /// The node with the least room left.
    BestFit,
}

/// The node where the placement adds the least fragmentation.
#[derive(Debug)]
pub struct Fgd {
    typical: TypicalPods,
    ties: Ties,
    /// Learning state; `None` if the mix is given.
    learning: Option<Learning>,
}

#[derive(Debug)]
struct Learning {
    mix: Mix,
    arrivals: u64,
    next: u64,
}

/// Arrivals before the first use of the learned mix. Later updates follow at twice the arrivals each, as in our own policy.
const FIRST: u64 = 50;

impl Fgd {
    /// FGD with this mix.
    pub fn knowing(typical: TypicalPods, ties: Ties) -> Self {
        Self { typical, ties, learning: None }
    }

    /// FGD with the mix of the arrived pods.
    pub fn learning() -> Self {
        let learning = Learning { mix: Mix::default(), arrivals: 0, next: FIRST };
        Self { typical: TypicalPods::default(), ties: Ties::First, learning: Some(learning) }
    }
}

impl Cost for Fgd {
    fn arrived(&mut self, demand: &Demand) -> bool {
        let Some(learning) = &mut self.learning else { return false };
        let is_planned_anew = learning.arrivals == learning.next;
        if is_planned_anew {
            learning.next *= 2;
            self.typical = TypicalPods::new(learning.mix.iter());
        }
        learning.arrivals += 1;
        learning.mix.arrived(demand);
        is_planned_anew
    }

    fn cost(&self, _index: usize, node: &Node, demand: &Demand) -> (f64, Cards) {
        let before = self.typical.fragments(node);
        let score = |cards: Cards| {
            let mut after = node.clone();
            // Fragments ignore memory, so memory may not suffice.
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
