//! Evictions in flight, and refused ones.

use std::collections::BTreeMap;

use crate::backoff::Backoff;
use crate::intent::PodReference;
use tessera_placement::Time;

/// Pause before an eviction without effect is sent again.
const AGAIN: Time = Time::from_secs(30);

/// How long a pod counts as not evictable after the first refusal, and after many.
const UNEVICTABLE: Time = Time::from_secs(60);
const UNEVICTABLE_LONGEST: Time = Time::from_secs(900);

/// Number of an owner's pods evicted because their devices could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerCount {
    pub owner: String,
    pub evictions: u32,
}

#[derive(Debug, Default)]
struct Row {
    sent: Option<Time>,
    /// Valid once the eviction is accepted; kept here because the pod may be gone by then.
    count: Option<OwnerCount>,
}

/// Evictions by pod.
#[derive(Debug)]
pub(crate) struct Evictions {
    rows: BTreeMap<PodReference, Row>,
    refused: Backoff<PodReference>,
}

impl Default for Evictions {
    fn default() -> Self {
        Evictions { rows: BTreeMap::new(), refused: Backoff::new(UNEVICTABLE, UNEVICTABLE_LONGEST) }
    }
}

impl Evictions {
    /// Records an eviction; `false` if a recent one may still be in progress.
    pub fn send(&mut self, pod: PodReference, count: Option<OwnerCount>, now: Time) -> bool {
        self.remove_ended(now);
        if self.is_sent(&pod, now) {
            return false;
        }
        let row = self.rows.entry(pod).or_default();
        (row.sent, row.count) = (Some(now), count);
        true
    }

    /// Whether a recent eviction may still be in progress.
    pub fn is_sent(&self, pod: &PodReference, now: Time) -> bool {
        self.rows.get(pod).and_then(|row| row.sent).is_some_and(|since| since + AGAIN > now)
    }

    /// The eviction was accepted. Returns the owner's new count, if any.
    pub fn done(&mut self, pod: &PodReference) -> Option<OwnerCount> {
        self.rows.get_mut(pod)?.count.take()
    }

    /// The eviction was refused, by a disruption budget for example.
    pub fn refuse(&mut self, pod: &PodReference, now: Time) {
        self.refused.end(now);
        self.refused.fail(pod.clone(), now);
    }

    /// Whether an eviction of the pod was refused recently.
    pub fn is_refused(&self, pod: &PodReference, now: Time) -> bool {
        self.refused.is_paused(pod, now)
    }

    /// Drops send times at the start of a term: evictions of an earlier term may have had no effect.
    pub fn forget_sent(&mut self) {
        self.rows.values_mut().for_each(|row| row.sent = None);
    }

    fn remove_ended(&mut self, now: Time) {
        self.rows.retain(|_, row| row.sent.is_some_and(|since| since + AGAIN > now));
    }
}

#[cfg(test)]
mod tests {
    use tessera_cluster::Key;

    use super::*;

    #[test]
    fn an_eviction_is_sent_again_after_a_pause_and_counts_once() {
        let pod = PodReference { key: Key::new("team", "pod"), uid: "1".to_owned() };
        let mut evictions = Evictions::default();
        let at = Time::from_secs;
        let count = OwnerCount { owner: "o".to_owned(), evictions: 2 };
        assert!(evictions.send(pod.clone(), Some(count.clone()), at(0)));
        assert!(!evictions.send(pod.clone(), None, at(29)));
        assert_eq!((evictions.done(&pod), evictions.done(&pod)), (Some(count), None));
        assert!(evictions.send(pod.clone(), None, at(30)));
        evictions.refuse(&pod, at(31));
        assert!(evictions.is_refused(&pod, at(90)) && !evictions.is_refused(&pod, at(91)));
        // Refused again, as by a budget that stays.
        evictions.refuse(&pod, at(91));
        assert!(evictions.is_refused(&pod, at(210)) && !evictions.is_refused(&pod, at(211)));
    }
}
