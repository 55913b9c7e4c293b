//! What was found out in one round and holds until its end, so that pods that ask for the same share it.

use std::collections::BTreeMap;

use tessera_placement::ShapeId;

use super::gang::Gang;
use super::preempt::NoVictims;
use super::selector_costs::OF_ROUND;
use crate::refusals::{self, Refusals};

/// What was found out in this round.
#[derive(Debug)]
pub(super) struct Round {
    /// Cost of selectors that may still be spent.
    pub selector_cost: u64,
    /// Claims whose selectors have had their part, by shape, each with what is to be said of it.
    unanswered: BTreeMap<ShapeId, String>,
    /// Whether no node could take pods of a shape if it were empty.
    fits_no_empty_node: BTreeMap<ShapeId, bool>,
    /// Pods for which nobody can be preempted.
    without_victims: BTreeMap<Alike, NoVictims>,
}

/// What pods have in common for which the same could be preempted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alike {
    shape: ShapeId,
    priority: i32,
    /// Where nodes refused its like.
    owner: Option<String>,
    /// Who ends in time may use what is kept for others.
    ends_after: Option<i64>,
}

impl Alike {
    /// Of a pod by itself. `None` for a gang: it counts on what its own pods have.
    pub fn of(gang: &Gang, refusals: &Refusals) -> Option<Self> {
        let [member] = gang.members.as_slice() else { return None };
        let owner = refusals::owner(&member.pod);
        Some(Alike {
            shape: member.demand.as_ref()?.shape,
            priority: gang.priority(),
            owner: refusals.has_any(&owner).then_some(owner),
            ends_after: member.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds),
        })
    }
}

impl Default for Round {
    fn default() -> Self {
        Round {
            selector_cost: OF_ROUND,
            unanswered: BTreeMap::new(),
            fits_no_empty_node: BTreeMap::new(),
            without_victims: BTreeMap::new(),
        }
    }
}

impl Round {
    /// What is to be said of claims of this shape whose selectors have had their part of the round.
    pub fn unanswered(&self, claims_shape: ShapeId) -> Option<&str> {
        self.unanswered.get(&claims_shape).map(String::as_str)
    }

    /// The selectors of such claims have had their part of the round.
    pub fn set_unanswered(&mut self, claims_shape: ShapeId, why: &str) {
        self.unanswered.insert(claims_shape, why.to_owned());
    }

    /// What is known of pods of this shape.
    pub fn fits_no_empty_node(&self, shape: ShapeId) -> Option<bool> {
        self.fits_no_empty_node.get(&shape).copied()
    }

    /// Whether no node could take pods of this shape if it were empty.
    pub fn set_fits_no_empty_node(&mut self, shape: ShapeId, fits_none: bool) {
        self.fits_no_empty_node.insert(shape, fits_none);
    }

    /// Why nobody can be preempted for pods like these, if that is known.
    pub fn no_victims(&self, alike: &Alike) -> Option<NoVictims> {
        self.without_victims.get(alike).copied()
    }

    /// Nobody can be preempted for pods like these, for that reason.
    pub fn set_no_victims(&mut self, alike: Alike, why: NoVictims) {
        self.without_victims.insert(alike, why);
    }

    /// Something is kept for somebody no more, so that others may have it.
    pub fn forget_victims(&mut self) {
        self.without_victims.clear();
    }
}
