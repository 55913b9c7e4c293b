//! Nominations: node and devices named on a pod for which others are evicted. They count as taken for everybody but their pod.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::managed::Nomination;
use tessera_cluster::Key;
use tessera_placement::Time;
use tessera_placement::fleet::{Fleet, NodeIndex};

use crate::group::GroupId;
use crate::intent::PodReference;

/// A nomination in flight.
#[derive(Debug)]
struct Sent {
    pod: PodReference,
    nomination: Nomination,
    /// Planned anew if not observed by then.
    until: Time,
}

/// Nominations by pod.
#[derive(Debug, Default)]
pub(crate) struct Nominations {
    /// Not yet observed on their pods. They count at once, so no other plan picks the same victims.
    sent: BTreeMap<Key, Sent>,
    /// Nodes whose nominated devices count as taken.
    held: BTreeMap<Key, String>,
    /// Whether a nomination ceased to count as taken.
    has_freed: bool,
    /// Earliest time of the next plan.
    again: BTreeMap<GroupId, Time>,
    /// Pods whose victims were all asked to go, with nothing else to do until these end.
    evicting: BTreeSet<Key>,
    /// Position in the fleet's log of changes at the last [`Self::end_round`].
    evicting_at: usize,
}

impl Nominations {
    /// Records the nomination's write; planned anew if not observed by `until`.
    pub fn send(&mut self, pod: PodReference, nomination: Nomination, until: Time) {
        self.sent.insert(pod.key.clone(), Sent { pod, nomination, until });
    }

    /// The pod's nomination in flight.
    pub fn sent(&self, pod: &PodReference, now: Time) -> Option<&Nomination> {
        let sent = self.sent.get(&pod.key)?;
        (sent.until > now && sent.pod == *pod).then_some(&sent.nomination)
    }

    /// The pod was observed with a nomination.
    pub fn observed(&mut self, pod: &Key) {
        self.sent.remove(pod);
    }

    /// The pod's nominated devices on the node count as taken.
    pub fn hold(&mut self, pod: &Key, node: String) {
        self.held.insert(pod.clone(), node);
    }

    /// Whether the pod's nominated devices count as taken.
    pub fn is_held(&self, pod: &Key) -> bool {
        self.held.contains_key(pod)
    }

    /// The pod's nominated devices count as taken no longer. Returns their node.
    pub fn lift(&mut self, pod: &Key) -> Option<String> {
        self.evicting.remove(pod);
        self.held.remove(pod)
    }

    /// All victims of the pod were asked to go: a look changes nothing until these end.
    pub fn set_evicting(&mut self, pod: &Key) {
        self.evicting.insert(pod.clone());
    }

    /// Whether the pod's node, team and victims are unchanged since [`Self::set_evicting`].
    pub fn is_evicting(&self, pod: &Key) -> bool {
        self.evicting.contains(pod)
    }

    /// Each nominated pod is looked at again, after a change that concerns all.
    pub fn look_again(&mut self) {
        self.evicting.clear();
    }

    /// Nominated pods are looked at again where their node changed since the end of the last round.
    pub fn follow(&mut self, fleet: &Fleet) {
        let Some(changed) = fleet.changed_since(self.evicting_at) else { return self.look_again() };
        let changed: BTreeSet<NodeIndex> = changed.iter().copied().collect();
        let is_same = |node: &String| fleet.find(node).is_some_and(|index| !changed.contains(&index));
        let held = &self.held;
        self.evicting.retain(|pod| held.get(pod).is_some_and(is_same));
    }

    /// The round ends; its looks lifted nominations, and put them back.
    pub fn end_round(&mut self, fleet: &Fleet) {
        self.evicting_at = fleet.now();
    }

    /// Others may use nominated devices from now on.
    pub fn set_freed(&mut self) {
        self.has_freed = true;
    }

    /// Whether [`Self::set_freed`] was called since the last call.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.has_freed)
    }

    /// Earliest time of the group's next plan; zero before the first.
    pub fn plan_again(&self, group: &GroupId) -> Time {
        self.again.get(group).copied().unwrap_or_default()
    }

    /// Sets [`Self::plan_again`], and forgets expired entries.
    pub fn pause(&mut self, group: &GroupId, again: Time, now: Time) {
        self.again.retain(|_, again| *again > now);
        self.sent.retain(|_, sent| sent.until > now);
        self.again.insert(group.clone(), again);
    }
}
