//! Which pods get the reason written on them for which they wait. Events are lost where many pods wait (the queue of those to send is
//! short), and gone after an hour.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use tessera_api::waiting::Waiting;
use tessera_decide::{PodReference, Time};

/// How long a pod waits before its reason is written: most wait shorter.
const AFTER: Time = Time::from_secs(10);

/// Pause between two writes to one pod, for reasons that come and go.
const PAUSE: Time = Time::from_secs(30);

/// A pod that waits.
#[derive(Debug, Clone)]
pub struct WaitingPod<'w> {
    /// The pod.
    pub pod: PodReference,
    /// The kind of its reason.
    pub kind: &'static str,
    /// The reason.
    pub message: &'w str,
    /// What stands on the pod.
    pub noted: Option<Waiting>,
}

/// Since when pods wait, and when each was written to last.
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
    /// What is to be written now, of all pods that wait: once where another kind of reason stands on the pod, or none. A write that
    /// got lost is due again after a pause, for the watch does not bring it back.
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
        // One that comes and goes is written at most every half minute.
        assert_eq!(notes.due(seconds(1_015), [pod(1, "Unfit", Some(&due[0].1))].into_iter()), []);
        // Whoever waited, and waits anew, begins anew; so does a new pod of the name.
        notes.due(seconds(1_020), std::iter::empty());
        assert_eq!(notes.due(seconds(1_100), [pod(1, "NoNode", None)].into_iter()), []);
    }

    /// After a restart what stands on the pod is not written again.
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
