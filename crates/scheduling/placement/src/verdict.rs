//! Cached verdict on a node: its score, without the devices.

use crate::demand::Demand;
use crate::fit::{Fit, Takes};
use crate::fleet::{Fleet, NodeIndex};
use crate::kept::Bytes;
use crate::reason::Reason;
use crate::score::Score;

/// As [`Fit`], without the devices.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Takes(Suits),
    Blocked(Reason),
    Fatal(String),
}

/// Score of a node able to take the pod.
#[derive(Debug, Clone)]
pub(crate) struct Suits {
    pub score: Score,
    /// See [`Takes`].
    free: Box<[Box<[u16]>]>,
}

impl From<Fit> for Verdict {
    fn from(fit: Fit) -> Self {
        match fit {
            Fit::Takes(Takes { score, free, .. }) => Verdict::Takes(Suits { score, free }),
            Fit::Blocked(reason) => Verdict::Blocked(reason),
            Fit::Fatal(error) => Verdict::Fatal(error),
        }
    }
}

impl Suits {
    /// Recomputes the score by current node values, with the cheapest card for the demand.
    pub fn revalue(&mut self, demand: &Demand, index: NodeIndex, fleet: &Fleet) {
        let node = fleet.plain(index);
        let costs = self.free.iter().map(|free| fleet.packing.cost(node, free, demand.cpu_milli));
        if let Some(least) = costs.min() {
            self.score = self.score.with_cost(least);
        }
    }
}

impl Bytes for Suits {
    fn bytes(&self) -> usize {
        let of_cards = self.free.iter().map(|free| size_of::<Box<[u16]>>() + size_of_val::<[u16]>(free));
        size_of::<Self>() + of_cards.sum::<usize>()
    }
}

impl Bytes for Verdict {
    fn bytes(&self) -> usize {
        let more = match self {
            Verdict::Takes(suits) => suits.bytes() - size_of::<Suits>(),
            Verdict::Blocked(reason) => reason.bytes() - size_of::<Reason>(),
            Verdict::Fatal(error) => error.capacity(),
        };
        size_of::<Self>() + more
    }
}

impl Bytes for Reason {
    fn bytes(&self) -> usize {
        let text = match self {
            Reason::Refused(text) | Reason::Room(text) => text.capacity(),
            _ => 0,
        };
        size_of::<Self>() + text
    }
}
