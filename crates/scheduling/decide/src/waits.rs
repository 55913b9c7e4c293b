//! Pods that wait, and the pods to examine next.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;
use tessera_placement::Time;

use crate::intent::Topic;
use crate::wait_reason::WaitReason;

/// Minimum time between two Events about changed reasons of a pod.
const TELL_EVERY: Time = Time::from_secs(30);

/// Pods with our gate, and, where there are managed cards, pods without any gate and without devices.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pods: BTreeMap<Key, Waiting>,
    /// Pods to examine in the next round even if the fleet has not changed.
    due: BTreeSet<Key>,
    /// Pods whose reason changed too soon after an Event, with the time of the next one.
    untold: BTreeMap<Key, Time>,
    /// Fleet generation at the last full pass.
    passed: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    /// `None` until the pod was examined.
    why: Option<WaitReason>,
    told: Option<(WaitReason, Time)>,
    /// Earliest time of the next look, after a failed write or a costly selector.
    not_before: Time,
    /// No node with managed cards fits, as of the last look.
    is_stuck: bool,
    /// The pod asks for managed cards, so this controller allocates its devices.
    is_managed: bool,
    /// The requested devices in short.
    shape_text: Option<String>,
}

impl Waits {
    /// The pod waits and is due.
    pub fn add(&mut self, pod: &Key) {
        self.pods.entry(pod.clone()).or_default();
        self.due.insert(pod.clone());
    }

    /// The pod no longer waits. Returns whether it did.
    pub fn remove(&mut self, pod: &Key) -> bool {
        self.due.remove(pod);
        self.untold.remove(pod);
        self.pods.remove(pod).is_some()
    }

    /// Whether the pod waits.
    pub fn contains(&self, pod: &Key) -> bool {
        self.pods.contains_key(pod)
    }

    /// All waiting pods.
    pub fn pods(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }

    /// The pod is examined in the next round.
    pub fn mark_due(&mut self, pod: &Key) {
        self.due.insert(pod.clone());
    }

    /// As [`Self::mark_due`], for a pod that may have ceased to wait.
    pub fn mark_due_if_waiting(&mut self, pod: &Key) {
        if self.contains(pod) {
            self.mark_due(pod);
        }
    }

    /// All waiting pods are examined in the next round.
    pub fn mark_all_due(&mut self) {
        self.due.extend(self.pods.keys().cloned());
    }

    /// All waiting pods of the namespace are examined in the next round.
    pub fn mark_namespace_due(&mut self, namespace: &str) {
        self.due.extend(self.pods.keys().filter(|pod| pod.namespace == namespace).cloned());
    }

    /// The pods to examine in the next round.
    #[cfg(test)]
    pub fn due(&self) -> &BTreeSet<Key> {
        &self.due
    }

    /// Begins a round: returns the due pods, which are due no longer.
    pub fn take_due(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.due)
    }

    /// Earliest time at which a due pod may be examined, or an Event held back is due.
    pub fn next_due(&self) -> Option<Time> {
        let looks = self.due.iter().filter_map(|pod| Some(self.pods.get(pod)?.not_before));
        looks.chain(self.untold.values().copied()).min()
    }

    /// Whether all waiting pods were examined with the fleet in this generation.
    pub fn is_passed(&self, generation: usize) -> bool {
        self.passed == generation
    }

    /// All waiting pods were examined with the fleet in this generation.
    pub fn set_passed(&mut self, generation: usize) {
        self.passed = generation;
    }

    /// All waiting pods are examined in the next round, in queue order: no generation of the fleet has this number.
    pub fn begin_anew(&mut self) {
        self.passed = usize::MAX;
    }

    /// Why the pod waits; `None` for a pod that does not, or was not examined yet.
    pub fn reason(&self, pod: &Key) -> Option<&WaitReason> {
        self.pods.get(pod)?.why.as_ref()
    }

    /// Whether any pod waits because no node can take it.
    pub fn is_any_without_node(&self) -> bool {
        self.pods.values().any(|waiting| matches!(waiting.why, Some(WaitReason::NoNode { .. })))
    }

    /// Sets the reason without an Event.
    pub fn set_reason(&mut self, pod: &Key, why: WaitReason) {
        if let Some(waiting) = self.pods.get_mut(pod) {
            waiting.why = Some(why);
        }
    }

    /// Sets the reason. Returns the topic of an Event if the owner is told this reason and does not know it yet.
    pub fn set_reason_to_tell(&mut self, pod: &Key, why: &WaitReason, now: Time) -> Option<Topic> {
        let waiting = self.pods.get_mut(pod)?;
        waiting.why = Some(why.clone());
        self.untold.remove(pod);
        if !why.is_told() {
            return None;
        }
        match &waiting.told {
            Some((told, _)) if told == why => return None,
            Some((_, at)) if now < *at + TELL_EVERY => {
                self.untold.insert(pod.clone(), *at + TELL_EVERY);
                return None;
            }
            _ => {}
        }
        waiting.told = Some((why.clone(), now));
        Some(if waiting.is_managed { Topic::NotAllocated } else { Topic::NotSteered })
    }

    /// Takes the pods whose Event was held back until now, each with its reason of now.
    pub fn take_held_back(&mut self, now: Time) -> Vec<(Key, WaitReason)> {
        let due: Vec<Key> = self.untold.extract_if(.., |_, at| *at <= now).map(|(pod, _)| pod).collect();
        due.into_iter().filter_map(|pod| Some((pod.clone(), self.reason(&pod)?.clone()))).collect()
    }

    /// End of the pod's pause, if it has not ended.
    pub fn pause(&self, pod: &Key, now: Time) -> Option<Time> {
        self.pods.get(pod).map(|waiting| waiting.not_before).filter(|end| *end > now)
    }

    /// The pod is not examined before then.
    pub fn set_pause(&mut self, pod: &Key, until: Time) {
        if let Some(waiting) = self.pods.get_mut(pod) {
            waiting.not_before = until;
            self.due.insert(pod.clone());
        }
    }

    /// Whether no node with managed cards fitted the pod at its last look.
    pub fn is_stuck(&self, pod: &Key) -> bool {
        self.pods.get(pod).is_some_and(|waiting| waiting.is_stuck)
    }

    /// See [`Self::is_stuck`].
    pub fn set_stuck(&mut self, pod: &Key, is_stuck: bool) {
        if let Some(waiting) = self.pods.get_mut(pod) {
            waiting.is_stuck = is_stuck;
        }
    }

    /// Whether the pod asks for managed cards.
    pub fn is_managed(&self, pod: &Key) -> bool {
        self.pods.get(pod).is_some_and(|waiting| waiting.is_managed)
    }

    /// See [`Self::is_managed`].
    pub fn set_managed(&mut self, pod: &Key, is_managed: bool) {
        if let Some(waiting) = self.pods.get_mut(pod) {
            waiting.is_managed = is_managed;
        }
    }

    /// The pod's requested devices in short, once examined.
    pub fn shape_text(&self, pod: &Key) -> Option<&str> {
        self.pods.get(pod)?.shape_text.as_deref()
    }

    /// See [`Self::shape_text`].
    pub fn set_shape_text(&mut self, pod: &Key, text: Option<String>) {
        if let Some(waiting) = self.pods.get_mut(pod) {
            waiting.shape_text = text;
        }
    }
}
