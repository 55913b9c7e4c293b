//! Which pods are of which gang, and what has to be remembered of gangs between two looks.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;
use tessera_cluster::gang::GangId;
use tessera_placement::Time;

/// Gangs of which any pod is known.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    members: BTreeMap<GangId, BTreeSet<Key>>,
    of_pod: BTreeMap<Key, GangId>,
    /// Since when some pods of a gang run and too few others can.
    partial: BTreeMap<GangId, Time>,
    /// When to look at gangs whatever else happens.
    due: BTreeMap<GangId, Time>,
    /// The most pods of a gang that its nodes ever took when they were empty.
    room: BTreeMap<GangId, usize>,
}

impl Gangs {
    /// The pod is of this gang from now on, or of none, or is gone.
    pub fn set(&mut self, pod: &Key, gang: Option<GangId>) {
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
            } else {
                // The others may have waited for it to go.
                self.due.insert(before, Time::ZERO);
            }
        }
        if let Some(gang) = gang {
            self.members.entry(gang.clone()).or_default().insert(pod.clone());
            self.of_pod.insert(pod.clone(), gang);
        }
    }

    /// The gang of a pod.
    pub fn of(&self, pod: &Key) -> Option<&GangId> {
        self.of_pod.get(pod)
    }

    /// The pods of a gang.
    pub fn members(&self, gang: &GangId) -> impl Iterator<Item = &Key> {
        self.members.get(gang).into_iter().flatten()
    }

    /// Looks at the gang at that time.
    pub fn set_due(&mut self, gang: &GangId, due: Time) {
        let known = self.due.entry(gang.clone()).or_insert(due);
        *known = due.min(*known);
    }

    /// Gangs to look at now.
    pub fn take_due(&mut self, now: Time) -> Vec<GangId> {
        self.due.extract_if(.., |_, due| *due <= now).map(|(gang, _)| gang).collect()
    }

    /// When the next one is to be looked at.
    pub fn next_due(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    /// Some of the gang run and too few others can, for no longer than since `since`, as far as objects tell. Returns since when.
    pub fn set_partial(&mut self, gang: &GangId, since: Time) -> Time {
        *self.partial.entry(gang.clone()).or_insert(since)
    }

    /// Enough of the gang run, or none.
    pub fn set_whole(&mut self, gang: &GangId) {
        self.partial.remove(gang);
    }

    /// So many pods of the gang fit when nothing is held. Returns the most that ever did.
    pub fn see_room(&mut self, gang: &GangId, pods: usize) -> usize {
        let most = self.room.entry(gang.clone()).or_default();
        *most = pods.max(*most);
        *most
    }

    /// Another replica leads from now on, or this one anew: what was remembered may be wrong.
    pub fn forget_times(&mut self) {
        self.partial.clear();
        self.due.clear();
    }
}
