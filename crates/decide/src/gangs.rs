//! Gang membership of pods, and state of gangs kept between two looks.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{GangId, Membership, formed};
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

/// Gangs with at least one known pod.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    members: BTreeMap<GangId, BTreeSet<Key>>,
    of_pod: BTreeMap<Key, GangId>,
    /// Since when some pods of a gang run while too few others can.
    partial: BTreeMap<GangId, Time>,
    /// When to look at gangs even if nothing else changes.
    due: BTreeMap<GangId, Time>,
    /// The least that a gang has needed since its gates were last removed: it may have shrunk.
    least: BTreeMap<GangId, usize>,
    /// Largest number of a gang's pods its nodes ever had room for when empty.
    room: BTreeMap<GangId, usize>,
}

impl Gangs {
    /// Sets the pod's membership; `None` for a pod of no gang or a deleted pod.
    pub fn set(&mut self, pod: &Key, member: Option<Membership>) {
        let gang = member.map(|member| {
            let min = usize::try_from(member.min).unwrap_or(usize::MAX);
            self.least.entry(member.gang.clone()).and_modify(|least| *least = min.min(*least)).or_insert(min);
            member.gang
        });
        if self.of_pod.get(pod) == gang.as_ref() {
            return;
        }
        if let Some(before) = self.of_pod.remove(pod)
            && let Some(members) = self.members.get_mut(&before)
        {
            members.remove(pod);
            if members.is_empty() {
                self.members.remove(&before);
                self.partial.remove(&before);
                self.due.remove(&before);
                self.room.remove(&before);
                self.least.remove(&before);
            } else {
                // The other pods may have waited for its deletion.
                self.due.insert(before, Time::ZERO);
            }
        }
        if let Some(gang) = gang {
            self.members.entry(gang.clone()).or_default().insert(pod.clone());
            self.of_pod.insert(pod.clone(), gang);
        }
    }

    /// The gang's gates are being removed.
    pub fn set_started(&mut self, gang: &GangId) {
        self.least.remove(gang);
    }

    /// Number of pods that the gang started with, less where it needed fewer since then; 0 before its start.
    pub fn formed<'p>(&self, gang: &GangId, pods: impl Iterator<Item = &'p Pod>) -> usize {
        // The gate is removed and the number written in one patch.
        let formed = pods.filter(|pod| !pod.is_gated()).map(formed).max().unwrap_or_default();
        self.least.get(gang).map_or(formed, |least| formed.min(*least))
    }

    pub fn of(&self, pod: &Key) -> Option<&GangId> {
        self.of_pod.get(pod)
    }

    pub fn members(&self, gang: &GangId) -> impl Iterator<Item = &Key> {
        self.members.get(gang).into_iter().flatten()
    }

    /// Schedules a look at the gang for `due`, or for an earlier time already set.
    pub fn set_due(&mut self, gang: &GangId, due: Time) {
        let known = self.due.entry(gang.clone()).or_insert(due);
        *known = due.min(*known);
    }

    /// Removes and returns the gangs to look at now.
    pub fn take_due(&mut self, now: Time) -> Vec<GangId> {
        self.due.extract_if(.., |_, due| *due <= now).map(|(gang, _)| gang).collect()
    }

    /// When to look at the next gang.
    pub fn next_due(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    /// Records a partially running gang, since `since` at the earliest as far as objects show. Returns the recorded start.
    pub fn set_partial(&mut self, gang: &GangId, since: Time) -> Time {
        *self.partial.entry(gang.clone()).or_insert(since)
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
        self.due.clear();
    }
}
