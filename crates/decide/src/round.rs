//! Findings valid for one round, shared by pods with the same demand.

use std::collections::BTreeMap;

use tessera_placement::ShapeId;
use tessera_placement::victims::Units;

use crate::group::Gang;
use crate::refusals::{self, Refusals};

/// Cost per round for all claims: some 0.15 s with what is begun and ended, so that no other pod waits longer.
const SELECTOR_COST: u64 = 6_000_000;

/// Why there are no victims.
#[derive(Debug, Clone)]
pub(crate) enum NoVictims {
    /// No eviction would help.
    Nobody,
    /// Eviction would help, but a PodDisruptionBudget forbids it.
    Kept,
    /// Pods of lower priority without devices take what is missing besides devices. They are not evicted: kube-scheduler knows nothing
    /// of a nomination, and would give their room to the next pod, mostly to their replacements.
    Room {
        /// A node where room would be made.
        node: String,
        /// The pods, as text.
        pods: String,
    },
}

/// Findings of this round.
#[derive(Debug)]
pub(crate) struct Round {
    /// Remaining budget for selector evaluation.
    pub selector_cost: u64,
    /// Claims whose selectors used up their share, by shape, each with the wait reason.
    unanswered: BTreeMap<ShapeId, String>,
    /// Whether no node could take pods of the shape even if empty.
    fits_no_empty_node: BTreeMap<ShapeId, bool>,
    /// Pods without possible victims.
    without_victims: BTreeMap<Alike, NoVictims>,
    /// Pods that hold devices, as units to evict. Computed on demand.
    pub units: Option<Units>,
}

/// Properties shared by pods with the same possible victims.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    shape: ShapeId,
    priority: i32,
    /// The pod's owner, if nodes refused its pods.
    owner: Option<String>,
    /// Pods with a deadline may use nodes reserved for others.
    ends_after: Option<i64>,
}

impl Alike {
    /// The key of a single pod. `None` for a gang, whose result depends on its own pods' devices.
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
            selector_cost: SELECTOR_COST,
            unanswered: BTreeMap::new(),
            fits_no_empty_node: BTreeMap::new(),
            without_victims: BTreeMap::new(),
            units: None,
        }
    }
}

impl Round {
    /// The wait reason of claims of this shape, if their selectors used up their share of the round.
    pub fn unanswered(&self, claims_shape: ShapeId) -> Option<&str> {
        self.unanswered.get(&claims_shape).map(String::as_str)
    }

    /// Marks the selectors of such claims as having used up their share.
    pub fn set_unanswered(&mut self, claims_shape: ShapeId, why: &str) {
        self.unanswered.insert(claims_shape, why.to_owned());
    }

    /// Whether no node could take pods of this shape even if empty, if known.
    pub fn fits_no_empty_node(&self, shape: ShapeId) -> Option<bool> {
        self.fits_no_empty_node.get(&shape).copied()
    }

    /// Records whether no node could take pods of this shape even if empty.
    pub fn set_fits_no_empty_node(&mut self, shape: ShapeId, fits_none: bool) {
        self.fits_no_empty_node.insert(shape, fits_none);
    }

    /// Why there are no victims for pods like these, if known.
    pub fn no_victims(&self, alike: &Alike) -> Option<NoVictims> {
        self.without_victims.get(alike).cloned()
    }

    /// Records why there are no victims for pods like these.
    pub fn set_no_victims(&mut self, alike: Alike, why: NoVictims) {
        self.without_victims.insert(alike, why);
    }

    /// A node or device is no longer kept for a pod, so others may use it.
    pub fn forget_victims(&mut self) {
        self.without_victims.clear();
    }
}
