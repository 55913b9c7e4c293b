//! Places kept for the successors of pods that move, and the moves of late.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::managed::PlannedMove;
use tessera_cluster::Key;
use tessera_placement::Time;

use crate::group::GroupId;

/// How long the owner of a moved pod is left alone.
pub(crate) const DAY: Time = Time::from_secs(24 * 3_600);

const HOUR: Time = Time::from_secs(3_600);

/// Pause between two searches for moves, which look at all nodes; and between two for the same group.
const SEARCH_AGAIN: Time = Time::from_secs(10);
const SEARCH_AGAIN_FOR_GROUP: Time = Time::from_secs(300);

/// A place kept for the successor of a pod that moves.
#[derive(Debug)]
pub(crate) struct Place {
    /// The pod for which it moves.
    pub waiting: Key,
    pub planned: PlannedMove,
    /// The moving pod, for the room that its successor takes; unknown if it was gone before this replica saw the plan.
    pub pod: Pod,
    pub until: Time,
    /// Whether the devices count as taken now.
    pub is_held: bool,
    /// Whether a successor got devices, here or elsewhere.
    pub is_over: bool,
}

/// A pod sent away.
#[derive(Debug)]
struct Moved {
    uid: String,
    at: Time,
    pools: BTreeSet<String>,
}

/// Places and moves.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub places: Vec<Place>,
    /// The last move by owner.
    moved: BTreeMap<String, Moved>,
    /// Pools whose pods may move, as of the last look at all nodes.
    pools: BTreeSet<String>,
    next_look: Time,
    next_search: Time,
    searched: BTreeMap<GroupId, Time>,
}

impl Gathering {
    /// Pools whose pods may move, by `look` if the last one is too long ago.
    pub fn pools(&mut self, now: Time, look: impl FnOnce() -> BTreeSet<String>) -> &BTreeSet<String> {
        if self.next_look <= now {
            self.next_look = now + SEARCH_AGAIN;
            self.pools = look();
        }
        &self.pools
    }

    /// Whether to search moves for the group now.
    pub fn begin_search(&mut self, group: &GroupId, now: Time) -> bool {
        self.searched.retain(|_, again| *again > now);
        let may = self.next_search <= now && !self.searched.contains_key(group);
        if may {
            self.next_search = now + SEARCH_AGAIN;
            self.searched.insert(group.clone(), now + SEARCH_AGAIN_FOR_GROUP);
        }
        may
    }

    /// When to search moves for the group again.
    pub fn search_again(&self, group: &GroupId) -> Time {
        self.searched.get(group).copied().unwrap_or_default().max(self.next_search)
    }

    /// Records a pod sent away.
    pub fn set_moved(&mut self, owner: String, uid: &str, pools: BTreeSet<String>, now: Time) {
        self.moved.retain(|_, moved| moved.at + DAY > now);
        self.moved.insert(owner, Moved { uid: uid.to_owned(), at: now, pools });
    }

    /// The eviction of this pod was refused.
    pub fn forget_moved(&mut self, uid: &str) {
        self.moved.retain(|_, moved| moved.uid != uid);
    }

    /// Whether another pod of the owner was moved within a day.
    pub fn is_moved(&self, owner: &str, uid: &str, now: Time) -> bool {
        self.moved.get(owner).is_some_and(|moved| moved.uid != uid && moved.at + DAY > now)
    }

    /// Whether this very pod was sent away.
    pub fn is_sent_away(&self, owner: &str, uid: &str) -> bool {
        self.moved.get(owner).is_some_and(|moved| moved.uid == uid)
    }

    /// Number of pods moved within the last hour in a pool.
    pub fn moved_in(&self, pool: &str, now: Time) -> u32 {
        let recent = self.moved.values().filter(|moved| moved.at + HOUR > now && moved.pools.contains(pool));
        u32::try_from(recent.count()).unwrap_or(u32::MAX)
    }

    /// When the first place ends.
    pub fn next_end(&self) -> Option<Time> {
        self.places.iter().map(|place| place.until).min()
    }
}
