//! Gang membership of pods, and state of gangs kept between two looks.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{GangId, Membership, formed_by};
use tessera_cluster::{Key, Objects};
use tessera_placement::Time;

use crate::group::GroupId;

/// Gangs with at least one known pod.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    /// Each pod, with its numbers once started.
    members: BTreeMap<GangId, BTreeMap<Key, Option<Started>>>,
    of_pod: BTreeMap<Key, GangId>,
    /// Since when some pods of a gang run while too few others can.
    partial: BTreeMap<GangId, Time>,
    /// Gangs one of whose pods cannot get devices as it is.
    unfit: BTreeSet<GangId>,
    /// When to look at groups even if nothing else changes.
    due: BTreeMap<GroupId, Time>,
    /// The least since a pod of the gang last started: the gang may have shrunk.
    least: BTreeMap<GangId, Least>,
    /// Largest number of a gang's pods its nodes ever had room for when empty.
    room: BTreeMap<GangId, usize>,
}

/// The gang's numbers by agreement of all started pods.
#[derive(Debug, Clone, Copy)]
struct Least {
    /// Number of pods needed.
    min: usize,
    size: usize,
}

/// Numbers on a started pod.
#[derive(Debug, Clone, Copy)]
struct Started {
    asks: Least,
    /// Number of started pods.
    formed: usize,
}

impl Gangs {
    /// Sets the pod's membership; `None` for a pod of no gang or a deleted pod. `formed`: number of pods at its start; 0 before.
    /// Returns whether its gang needs fewer pods now than before.
    pub fn set(&mut self, pod: &Key, member: Option<Membership>, formed: usize) -> bool {
        let Some(Membership { gang, min, size, .. }) = member else {
            self.leave(pod);
            return false;
        };
        if self.of_pod.get(pod) != Some(&gang) {
            self.leave(pod);
            self.of_pod.insert(pod.clone(), gang.clone());
        }
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let asks = Least { min: count(min), size: count(size) };
        let started = (formed > 0).then_some(Started { asks, formed });
        let before = self.members.entry(gang.clone()).or_default().insert(pod.clone(), started);
        if started.is_some() && before.flatten().is_none() {
            self.least.remove(&gang);
        }
        self.lower(&gang)
    }

    /// The pod is of no gang.
    fn leave(&mut self, pod: &Key) {
        let Some(before) = self.of_pod.remove(pod) else { return };
        let Some(members) = self.members.get_mut(&before) else { return };
        members.remove(pod);
        if members.is_empty() {
            self.members.remove(&before);
            self.partial.remove(&before);
            self.unfit.remove(&before);
            self.due.remove(&GroupId::Gang(before.clone()));
            self.room.remove(&before);
            self.least.remove(&before);
        } else {
            self.lower(&before);
            // The other pods may have waited for its deletion.
            self.due.insert(GroupId::Gang(before), Time::ZERO);
        }
    }

    /// The gang shrank if all of its started pods say so: one may have the label of a foreign gang.
    fn lower(&mut self, gang: &GangId) -> bool {
        let all = self.members.get(gang).into_iter().flatten();
        let all = all.filter_map(|(_, started)| started.map(|started| started.asks));
        let largest =
            all.reduce(|one, other| Least { min: one.min.max(other.min), size: one.size.max(other.size) });
        let Some(largest) = largest else { return false };
        let least = self.least.entry(gang.clone()).or_insert(largest);
        let is_lower = largest.min < least.min || largest.size < least.size;
        *least = Least { min: largest.min.min(least.min), size: largest.size.min(least.size) };
        is_lower
    }

    /// Number of pods that the gang of `size` pods started with, less where it needed fewer since then; 0 before its start.
    pub fn formed<'p>(
        &self,
        objects: &Objects,
        gang: &GangId,
        size: usize,
        pods: impl Iterator<Item = &'p Pod>,
    ) -> usize {
        let formed = formed_by(objects, size, pods);
        self.least.get(gang).map_or(formed, |least| formed.min(least.min))
    }

    /// Size of the pod's gang, if it started with more pods and has shrunk.
    pub fn shrunk_to(&self, pod: &Key) -> Option<usize> {
        let gang = self.of(pod)?;
        let started = (*self.members.get(gang)?.get(pod)?)?;
        let size = self.least.get(gang)?.size;
        (size < started.formed).then_some(size)
    }

    pub fn of(&self, pod: &Key) -> Option<&GangId> {
        self.of_pod.get(pod)
    }

    /// The pod's gang, or the pod alone.
    pub fn group_of(&self, pod: &Key) -> GroupId {
        self.of(pod).map_or_else(|| GroupId::Pod(pod.clone()), |gang| GroupId::Gang(gang.clone()))
    }

    pub fn members(&self, gang: &GangId) -> impl Iterator<Item = &Key> {
        self.members.get(gang).into_iter().flat_map(BTreeMap::keys)
    }

    /// Schedules a look at the group for `due`, or for an earlier time already set.
    pub fn set_due(&mut self, group: &GroupId, due: Time) {
        let known = self.due.entry(group.clone()).or_insert(due);
        *known = due.min(*known);
    }

    /// Removes and returns the groups to look at now.
    pub fn take_due(&mut self, now: Time) -> Vec<GroupId> {
        self.due.extract_if(.., |_, due| *due <= now).map(|(group, _)| group).collect()
    }

    /// When to look at the next group.
    pub fn next_due(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    /// Records a partially running gang, since `since` at the earliest as far as objects show. Returns the recorded start.
    pub fn set_partial(&mut self, gang: &GangId, since: Time) -> Time {
        *self.partial.entry(gang.clone()).or_insert(since)
    }

    /// Begins the time of a partially running gang anew.
    pub fn restart_partial(&mut self, gang: &GangId, now: Time) {
        self.partial.insert(gang.clone(), now);
    }

    /// Records whether a pod of the gang cannot get devices as it is. Returns whether this has just ended.
    pub fn set_unfit(&mut self, gang: &GangId, is_unfit: bool) -> bool {
        if is_unfit {
            self.unfit.insert(gang.clone());
            return false;
        }
        self.unfit.remove(gang)
    }

    /// Records a gang with enough running pods, or none.
    pub fn set_whole(&mut self, gang: &GangId) {
        self.partial.remove(gang);
    }

    /// Records room for `pods` of the gang's pods with all devices free. Returns the maximum so far.
    pub fn raise_room(&mut self, gang: &GangId, pods: usize) -> usize {
        let most = self.room.entry(gang.clone()).or_default();
        *most = pods.max(*most);
        *most
    }

    /// Leadership changes, or this replica starts a new term: recorded times may be wrong.
    pub fn forget_times(&mut self) {
        self.partial.clear();
        self.unfit.clear();
        self.due.clear();
    }
}
