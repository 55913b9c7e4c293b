//! Findings valid for one round, shared by pods with the same demand.

use std::collections::BTreeMap;

use tessera_placement::victims::Units;
use tessera_placement::{ShapeId, Time};

use crate::group::Group;
use crate::kueue;
use crate::preempt::Ending;
use crate::refusals::{self, Refusals};
use crate::teams::{Allowance, Borrowers, CardTime, Division, TeamId};
use crate::victims::{Ask, Shortage};

/// Cost per round for all claims: some 0.15 s with what is begun and ended, so that no other pod waits longer.
const SELECTOR_COST: u64 = 6_000_000;

/// Steps per round, in nodes judged for a shape: some 0.15 s. The groups left are examined in the next round, at once.
const STEPS: u64 = 5_000;

/// Steps of a round after several that were cut.
const MOST_STEPS: u64 = 8 * STEPS;

/// Pods awaiting the end of their victims: how many are due in the same second, and by how many seconds at most the last is due later.
const LOOKS: u32 = 25;
const LONGEST_APART: u32 = 20;

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
    /// The least cards taken by a pod of the shape.
    least_cards: BTreeMap<ShapeId, u64>,
    /// Pods without possible victims.
    without_victims: BTreeMap<Alike, NoVictims>,
    /// Pods that hold devices, as units to evict. Computed on demand.
    pub units: Option<Units>,
    /// The same, with the rank of borrowed devices instead of the priority ([`Ask::TakeBack`]).
    pub borrowed: Option<Units>,
    /// Who holds what of these.
    pub borrowers: Borrowers,
    /// By unit of these: whether none but teams of the same parent take it back.
    pub is_in_family: Vec<bool>,
    /// By unit of [`Self::units`]: whether it is an idle group whose devices go to those who wait.
    pub is_idle: Vec<bool>,
    /// Pods that are ending, and claims. Computed on demand.
    pub ending: Option<Ending>,
    /// Cards to be shared among teams. Computed on demand.
    pub division: Option<Division>,
    /// When time alone lets more devices be taken back, if known.
    pub next_take_back: Option<Time>,
    /// GPU hours reserved by pods with a deadline, by team. Computed on demand.
    pub reserved: BTreeMap<TeamId, CardTime>,
    /// Number of pods found to wait until their victims end.
    waiting: u32,
    /// Number of steps of this round.
    steps: u64,
    /// Number of steps after which the round ends, counted as [`Rankings::judged`](tessera_placement::ranking::Rankings::judged).
    end: u64,
    is_cut: bool,
}

/// Properties shared by pods with the same possible victims.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    shape: ShapeId,
    priority: i32,
    team: TeamId,
    /// Kueue's ClusterQueue, of which victims are.
    cluster_queue: Option<String>,
    ask: (Ask, Shortage),
    allowance: Allowance,
    /// The pod's owner, if nodes refused its pods.
    owner: Option<String>,
    /// Pods with a deadline may use nodes reserved for others.
    ends_after: Option<i64>,
}

impl Alike {
    /// The key of a single pod. `None` for a gang, whose result depends on its own pods' devices.
    pub fn of(
        group: &Group,
        refusals: &Refusals,
        team: TeamId,
        ask: (Ask, Shortage),
        allowance: Allowance,
    ) -> Option<Self> {
        let [member] = group.members.as_slice() else { return None };
        let owner = refusals::owner(&member.pod);
        Some(Alike {
            shape: member.demand.as_ref()?.shape,
            priority: group.priority(),
            team,
            cluster_queue: kueue::cluster_queue_of(group).map(str::to_owned),
            ask,
            allowance,
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
            least_cards: BTreeMap::new(),
            without_victims: BTreeMap::new(),
            units: None,
            borrowed: None,
            borrowers: Borrowers::default(),
            is_in_family: Vec::new(),
            is_idle: Vec::new(),
            ending: None,
            division: None,
            next_take_back: None,
            reserved: BTreeMap::new(),
            waiting: 0,
            steps: STEPS,
            end: STEPS,
            is_cut: false,
        }
    }
}

impl Round {
    /// A new round; `judged`: number of nodes judged in all rounds before. After a round that was cut it has twice the steps, or a fleet
    /// that changes all the time would keep the last groups from their turn.
    pub fn after(before: &Round, judged: u64) -> Self {
        let steps = if before.is_cut { (2 * before.steps).min(MOST_STEPS) } else { STEPS };
        Round { steps, end: judged.saturating_add(steps), ..Round::default() }
    }

    /// Whether the round has used up its steps. `judged`: number of nodes judged until now.
    pub fn is_over(&mut self, judged: u64) -> bool {
        self.is_cut |= judged >= self.end;
        self.is_cut
    }

    /// Delay of the next look at a pod awaiting the end of its victims: not all are looked at in one round.
    pub fn apart(&mut self) -> Time {
        self.waiting += 1;
        Time::from_secs((self.waiting / LOOKS).min(LONGEST_APART).into())
    }

    /// Counts a search for victims, or within a limit: arithmetic for each node, an eighth of a step, and exact fits.
    pub fn count_search(&mut self, nodes: usize, fits: usize) {
        self.end = self.end.saturating_sub((nodes / 8 + fits) as u64);
    }

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

    /// The least cards taken by a pod of this shape, in the unit of [`Worth::cards`](tessera_cluster::worth::Worth::cards), if known.
    pub fn least_cards(&self, shape: ShapeId) -> Option<u64> {
        self.least_cards.get(&shape).copied()
    }

    /// Records the least cards taken by a pod of this shape.
    pub fn set_least_cards(&mut self, shape: ShapeId, cards: u64) {
        self.least_cards.insert(shape, cards);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The fleet may change so much that each round begins anew: the last groups still get their turn.
    #[test]
    fn a_round_after_one_that_was_cut_has_twice_the_steps() {
        let mut round = Round::after(&Round::default(), 100);
        assert!(!round.is_over(STEPS + 99) && round.is_over(STEPS + 100));
        let mut next = Round::after(&round, 100);
        assert!(!next.is_over(2 * STEPS + 99));
        next.count_search(800, 64);
        assert!(next.is_over(2 * STEPS - 64));
        let mut last = Round::after(&Round::after(&next, 0), 0);
        assert!(!last.is_over(STEPS - 1) && last.is_over(STEPS));
    }
}
