//! Selects the pods to be annotated with their waiting reason. Events are not enough: they are lost where many pods wait, because
//! the send queue is short, and expire after an hour.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use tessera_api::waiting::Waiting;
use tessera_decide::{PodReference, Time};

/// Waiting time of a pod before its reason is written. Most pods wait less.
const AFTER: Time = Time::from_secs(10);

/// Pause between two writes to one pod, against flapping reasons.
const PAUSE: Time = Time::from_secs(30);

/// A waiting pod.
#[derive(Debug, Clone)]
pub struct WaitingPod<'w> {
    /// The pod.
    pub pod: PodReference,
    /// The kind of its reason.
    pub kind: &'static str,
    /// The reason.
    pub message: &'w str,
    /// The reason already on the pod.
    pub noted: Option<Waiting>,
}

/// Start of waiting and last write, by pod.
#[derive(Debug, Default)]
pub struct WaitingNotes {
    pods: BTreeMap<PodReference, Progress>,
}

#[derive(Debug)]
struct Progress {
    since: Time,
    written: Option<Time>,
}

impl WaitingNotes {
    /// The writes due now, given all waiting pods: one where the pod has no reason, or one of another kind. A lost write is due
    /// again after a pause, because the watch never shows it.
    pub fn due<'w>(
        &mut self,
        now: Time,
        waiting: impl Iterator<Item = WaitingPod<'w>>,
    ) -> Vec<(PodReference, Waiting)> {
        let mut before = std::mem::take(&mut self.pods);
        let mut due = Vec::new();
        for WaitingPod { pod, kind, message, noted } in waiting {
            let mut progress = before.remove(&pod).unwrap_or(Progress { since: now, written: None });
            let is_new = noted.is_none_or(|noted| noted.kind != kind);
            let may_write = progress.since + AFTER <= now
                && progress.written.is_none_or(|written| written + PAUSE <= now);
            if is_new && may_write {
                progress.written = Some(now);
                due.push((
                    pod.clone(),
                    Waiting { kind: kind.to_owned(), message: message.to_owned(), time: at(now) },
                ));
            }
            self.pods.insert(pod, progress);
        }
        due
    }
}

fn at(now: Time) -> Timestamp {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use tessera_cluster::Key;

    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    fn pod(number: usize, kind: &'static str, noted: Option<&Waiting>) -> WaitingPod<'static> {
        let key = Key::new("team", format!("p{number}"));
        let pod = PodReference { key, uid: format!("uid-{number}") };
        WaitingPod { pod, kind, message: "no node", noted: noted.cloned() }
    }

    #[test]
    fn each_of_many_pods_gets_its_reason_once() {
        let mut notes = WaitingNotes::default();
        let all = |noted: &[Option<Waiting>]| -> Vec<WaitingPod<'static>> {
            (0..400).map(|number| pod(number, "NoNode", noted.get(number).and_then(Option::as_ref))).collect()
        };
        assert_eq!(notes.due(seconds(100), all(&[]).into_iter()), []);
        assert_eq!(notes.due(seconds(105), all(&[]).into_iter()), [], "most wait shorter");
        let written = notes.due(seconds(110), all(&[]).into_iter());
        assert_eq!(written.len(), 400);
        // One write was lost.
        let noted: Vec<Option<Waiting>> = written
            .into_iter()
            .map(|(pod, waiting)| Some(waiting).filter(|_| pod.key.name != "p7"))
            .collect();
        assert_eq!(notes.due(seconds(115), all(&noted).into_iter()), []);
        let again = notes.due(seconds(140), all(&noted).into_iter());
        let names: Vec<&str> = again.iter().map(|(pod, _)| pod.key.name.as_str()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn another_text_of_the_same_kind_is_not_written_and_another_kind_is() {
        let mut notes = WaitingNotes::default();
        notes.due(seconds(0), [pod(1, "NoNode", None)].into_iter());
        let (_, noted) = notes.due(seconds(10), [pod(1, "NoNode", None)].into_iter()).remove(0);
        let mut other = pod(1, "NoNode", Some(&noted));
        other.message = "no node of another count";
        assert_eq!(notes.due(seconds(1_000), [other].into_iter()), []);
        let due = notes.due(seconds(1_010), [pod(1, "Behind", Some(&noted))].into_iter());
        assert_eq!(due[0].1.kind, "Behind");
        // A flapping reason is written at most every half minute.
        assert_eq!(notes.due(seconds(1_015), [pod(1, "Unfit", Some(&due[0].1))].into_iter()), []);
        // A pod waiting again starts over; so does a new pod of the same name.
        notes.due(seconds(1_020), std::iter::empty());
        assert_eq!(notes.due(seconds(1_100), [pod(1, "NoNode", None)].into_iter()), []);
    }

    /// After a restart, a reason already on the pod is not written again.
    #[test]
    fn the_next_leader_writes_nothing_that_is_there() {
        let noted =
            Waiting { kind: "NoNode".to_owned(), message: "of before".to_owned(), time: at(seconds(5)) };
        let mut notes = WaitingNotes::default();
        for now in [100, 200] {
            assert_eq!(notes.due(seconds(now), [pod(1, "NoNode", Some(&noted))].into_iter()), []);
        }
    }
}
