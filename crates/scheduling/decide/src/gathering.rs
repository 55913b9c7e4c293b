//! Places kept for the successors of pods that move, and the moves of late.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::managed::PlannedMove;
use tessera_cluster::{Key, Objects, PodExt};
use tessera_placement::Time;

use crate::group::GroupId;
use crate::intent::PodReference;
use crate::pod::reference;

/// Expected running time of a pod without `activeDeadlineSeconds`: moves for it are judged by it.
pub(crate) const DAY: Time = Time::from_secs(24 * 3_600);

const HOUR: Time = Time::from_secs(3_600);

/// See [`crate::Decider::with_gather_periods`] and [`crate::Decider::with_gather_after`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Periods {
    /// How long a move counts to `perHour`.
    pub hour: Time,
    /// How long the owner of a moved pod is left alone.
    pub day: Time,
    /// How long a new leader lets no pods move: earlier moves are unknown, so the hour counts as used up.
    pub quiet: Time,
    /// How long a new leader lets none move of owners with a pod younger than a day.
    pub quiet_of_owners: Time,
}

impl Default for Periods {
    fn default() -> Self {
        Periods { hour: HOUR, day: DAY, quiet: HOUR, quiet_of_owners: DAY }
    }
}

/// Pause between two searches for moves, which look at all nodes; and between two for the same group.
const SEARCH_AGAIN: Time = Time::from_secs(10);
const SEARCH_AGAIN_FOR_GROUP: Time = Time::from_secs(300);

/// A place kept for the successor of a moving pod, or for a pod of one of Kueue's Workloads.
#[derive(Debug)]
pub(crate) struct Place {
    /// The waiting pod, or the Workload.
    pub waiting: Key,
    pub planned: PlannedMove,
    /// The moving pod, for the room that its successor takes; unknown if it was gone before this replica saw the plan.
    pub pod: Pod,
    pub until: Time,
    /// Whether the devices count as taken now.
    pub is_held: bool,
    /// Whether quotas count the place: no moving pod has devices in its stead.
    pub is_charged: bool,
    /// The pod with devices, here or elsewhere: the place is over, unless the pod loses them on the way.
    pub taken_by: Option<Key>,
}

/// How long a pod may take to be seen ending whose eviction failed: the answer may have been lost.
pub(crate) const UNCERTAIN: Time = Time::from_secs(30);

/// A pod sent away.
#[derive(Debug)]
struct Moved {
    pod: PodReference,
    at: Time,
    pools: BTreeSet<String>,
    /// When the eviction was said to have failed.
    failed: Option<Time>,
}

/// Places and moves.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub periods: Periods,
    pub places: Vec<Place>,
    /// The last move by owner.
    moved: BTreeMap<String, Moved>,
    next_search: Time,
    searched: BTreeMap<GroupId, Searched>,
}

/// The last search for a group.
#[derive(Debug)]
struct Searched {
    again: Time,
    /// A PodDisruptionBudget keeping pods otherwise free to move.
    kept_by: Option<Key>,
}

impl Gathering {
    /// Whether to search moves for the group now.
    pub fn begin_search(&mut self, group: &GroupId, now: Time) -> bool {
        // The outcome of the last search counts until the next.
        self.searched.retain(|_, searched| searched.again + SEARCH_AGAIN_FOR_GROUP > now);
        let may = self.next_search <= now && self.searched.get(group).is_none_or(|last| last.again <= now);
        if may {
            self.next_search = now + SEARCH_AGAIN;
            let searched = Searched { again: now + SEARCH_AGAIN_FOR_GROUP, kept_by: None };
            self.searched.insert(group.clone(), searched);
        }
        may
    }

    /// A PodDisruptionBudget keeps pods from moving for the group.
    pub fn set_kept(&mut self, group: &GroupId, budget: Option<Key>) {
        if let Some(searched) = self.searched.get_mut(group) {
            searched.kept_by = budget;
        }
    }

    /// See [`Self::set_kept`].
    pub fn kept_by(&self, group: &GroupId) -> Option<&Key> {
        self.searched.get(group)?.kept_by.as_ref()
    }

    /// When to search moves for the group again.
    pub fn search_again(&self, group: &GroupId) -> Time {
        self.searched.get(group).map_or(Time::ZERO, |searched| searched.again).max(self.next_search)
    }

    /// Records a pod sent away.
    pub fn set_moved(&mut self, owner: String, pod: PodReference, pools: BTreeSet<String>, now: Time) {
        self.moved.retain(|_, moved| moved.at + self.periods.day > now);
        self.moved.insert(owner, Moved { pod, at: now, pools, failed: None });
    }

    /// The eviction of this pod failed, as far as known.
    pub fn set_failed(&mut self, pod: &PodReference, now: Time) {
        self.moved.values_mut().filter(|moved| moved.pod == *pod).for_each(|moved| moved.failed = Some(now));
    }

    /// Whether nobody knows yet if this pod was evicted.
    pub fn is_uncertain(&self, pod: &PodReference, now: Time) -> bool {
        let mut moved = self.moved.values().filter(|moved| moved.pod == *pod);
        moved.any(|moved| moved.failed.is_some_and(|at| at + UNCERTAIN > now))
    }

    /// Forgets pods staying although sent away. Returns whether there are any.
    pub fn forget_staying(&mut self, objects: &Objects, now: Time) -> bool {
        let before = self.moved.len();
        self.moved.retain(|_, moved| {
            let pod = objects.pods.get(&moved.pod.key).filter(|pod| reference(pod) == moved.pod);
            if pod.is_none_or(|pod| pod.has_ended()) {
                moved.failed = None;
            }
            moved.failed.is_none_or(|at| at + UNCERTAIN > now)
        });
        self.moved.len() < before
    }

    /// Whether another pod of the owner was moved within a day.
    pub fn is_moved(&self, owner: &str, uid: &str, now: Time) -> bool {
        self.moved.get(owner).is_some_and(|moved| moved.pod.uid != uid && moved.at + self.periods.day > now)
    }

    /// Whether this very pod was sent away.
    pub fn is_sent_away(&self, owner: &str, uid: &str) -> bool {
        self.moved.get(owner).is_some_and(|moved| moved.pod.uid == uid)
    }

    /// Number of pods moved within the last hour in a pool.
    pub fn moved_in(&self, pool: &str, now: Time) -> u32 {
        let recent = self.moved.values().filter(|moved| moved.at + self.periods.hour > now);
        let recent = recent.filter(|moved| moved.pools.contains(pool));
        u32::try_from(recent.count()).unwrap_or(u32::MAX)
    }

    /// When the first place ends.
    pub fn next_end(&self) -> Option<Time> {
        self.places.iter().map(|place| place.until).min()
    }
}
