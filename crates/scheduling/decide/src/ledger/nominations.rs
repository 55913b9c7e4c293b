//! Nominations: node and devices named on a pod for which others are evicted. They count as taken for everybody but their pod.

use std::collections::BTreeMap;

use tessera_api::managed::Nomination;
use tessera_cluster::Key;
use tessera_placement::Time;

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
        self.held.remove(pod)
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
