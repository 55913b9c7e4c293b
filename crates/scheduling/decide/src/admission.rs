//! Kueue's Workloads with an AdmissionCheck of the controller [`CHECK_CONTROLLER`]: all their pods are planned before any exists.
//!
//! **States** of the check while quota is reserved
//!
//! ```text
//! Pending ──(all pods have room)──> Ready: the room is kept, and stands on the Workload
//!    ├──(no room, for less than reserveAfterSeconds)──> Pending, with the reason
//!    └──(no room for longer)──> Retry: Kueue takes the quota back, and comes again after a growing pause
//! ```
//!
//! The room is a place for each pod ([`places`]), given to pods naming the Workload. It ends with the quota, and
//! reserveAfterSeconds after it was planned. A Workload not admitted by then is planned anew.

mod answer;
mod seats;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tessera_api::kueue::{CHECK_CONTROLLER, KeptPlace, KeptRoom, ROOM_ANNOTATION};
use tessera_api::managed::{Nomination, PlannedMove};
use tessera_cluster::kueue::Workload;
use tessera_cluster::{Key, Kind};
use tessera_placement::Time;

use crate::nominations::{KEPT, LONGEST_GRACE, at};
use crate::state::State;
use crate::world::World;
use crate::{holders, places};

pub(crate) use answer::{answer_all, may_answer};

/// Kinds needed for any answer.
const NEEDED: [Kind; 3] = [Kind::Workload, Kind::AdmissionCheck, Kind::ResourceFlavor];

/// How long to wait for a write's outcome to be observed.
const UNTIL_SEEN: Time = Time::from_secs(30);

/// Pause after a failed write.
const PAUSE: Time = Time::from_secs(10);

/// An answer in flight.
#[derive(Debug)]
struct Sent {
    uid: String,
    /// State and message.
    answer: (String, String),
    room: Option<KeptRoom>,
    until: Time,
}

/// Workloads with checks to be answered.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Changed since the last round.
    changed: BTreeSet<Key>,
    /// Unanswered, each with the time of the next look if nothing changes.
    pending: BTreeMap<Key, Time>,
    sent: BTreeMap<Key, Sent>,
    /// When a message was last changed.
    told: BTreeMap<Key, Time>,
    /// Room kept.
    kept: BTreeMap<Key, KeptRoom>,
    /// Position in the fleet's log of changes at the last look at all.
    passed: Option<usize>,
}

impl Checks {
    /// The Workload changed.
    pub fn mark(&mut self, workload: &Key) {
        self.changed.insert(workload.clone());
    }

    /// The Workload is gone.
    pub fn mark_deleted(&mut self, workload: &Key) {
        self.told.remove(workload);
        // A follower answers none, and would keep the names of all.
        let is_known = self.pending.contains_key(workload)
            || self.sent.contains_key(workload)
            || self.kept.contains_key(workload);
        if is_known {
            self.mark(workload);
        } else {
            self.changed.remove(workload);
        }
    }

    /// The outcome of a write.
    pub fn answered(&mut self, workload: &Key, uid: &str, is_done: bool, now: Time) {
        if !is_done && self.sent.get(workload).is_some_and(|sent| sent.uid == uid) {
            self.sent.remove(workload);
            self.mark(workload);
            self.pending.insert(workload.clone(), now + PAUSE);
        }
    }

    /// When to look again even if nothing changes.
    pub fn next_due(&self) -> Option<Time> {
        let due = self.pending.iter().filter(|(workload, _)| !self.sent.contains_key(*workload));
        due.map(|(_, due)| *due).chain(self.sent.values().map(|sent| sent.until)).min()
    }
}

/// All Workloads are looked at: who answers which check may have changed.
pub(crate) fn mark_all(state: &mut State) {
    state.checks.changed.extend(state.world.cluster.objects().workloads.keys().cloned());
}

/// Whether all objects needed for answers are known.
fn is_listed(world: &World) -> bool {
    NEEDED.iter().all(|kind| !world.cluster.objects().unlisted.contains(kind))
}

/// Follows changed Workloads: room is kept for answered ones alone.
pub(crate) fn follow(state: &mut State, now: Time) {
    let Checks { sent, changed, .. } = &mut state.checks;
    let overdue: Vec<Key> =
        sent.extract_if(.., |_, sent| sent.until <= now).map(|(workload, _)| workload).collect();
    changed.extend(overdue);
    for workload in std::mem::take(changed) {
        settle(state, now, &workload);
    }
}

fn settle(state: &mut State, now: Time, key: &Key) {
    let ours = ours(&state.world);
    let workload = state.world.cluster.objects().workloads.get(key).filter(|found| found.has_quota());
    let workload = workload.filter(|found| own_checks(found, &ours).next().is_some()).cloned();
    let checks = &mut state.checks;
    let (mut room, mut is_pending) = (None, None);
    if let Some(workload) = &workload {
        let uid = workload.metadata.uid.as_deref().unwrap_or_default();
        let is_seen = |sent: &Sent| {
            let is_answered = |check: &Value| {
                (check["state"].as_str(), check["message"].as_str())
                    == (Some(&sent.answer.0), Some(&sent.answer.1))
            };
            sent.uid != uid || own_checks(workload, &ours).all(is_answered)
        };
        if checks.sent.get(key).is_some_and(is_seen) {
            checks.sent.remove(key);
        }
        let written = room_of(workload);
        let is_ready = own_checks(workload, &ours).all(|check| check["state"] == "Ready");
        room = match checks.sent.get(key) {
            Some(sent) => sent.room.clone(),
            None => written.clone().filter(|room| is_ready && is_in_force(room, now)),
        };
        is_pending = match written {
            // Kueue may wait for other checks for longer than the room is kept.
            Some(room) if is_ready && workload.condition("Admitted").is_none() => Some(at(room.until)),
            _ => own_checks(workload, &ours).any(|check| check["state"] == "Pending").then_some(now),
        };
    } else {
        checks.sent.remove(key);
        checks.told.remove(key);
    }
    match is_pending {
        // The pause after a failed write stays.
        Some(due) => {
            let next = checks.pending.entry(key.clone()).or_insert(due);
            *next = due.max(*next);
        }
        None => {
            checks.pending.remove(key);
        }
    }
    if checks.kept.get(key) != room.as_ref() {
        let workload = workload.as_deref().zip(room.as_ref());
        keep(state, key, workload);
    }
}

/// Keeps this room for the pods of the Workload, and no other.
fn keep(state: &mut State, key: &Key, room: Option<(&Workload, &KeptRoom)>) {
    if state.checks.kept.remove(key).is_some() {
        places::release(state, &waiting(key));
    }
    let Some((workload, room)) = room else { return };
    let pods = seats::pods(state.world.cluster.objects(), key, workload);
    let uid = workload.metadata.uid.as_deref().unwrap_or_default();
    for (number, KeptPlace { pod_set, node, devices }) in room.places.iter().enumerate() {
        let nomination = Nomination {
            node: node.clone(),
            devices: devices.clone(),
            victims: Vec::new(),
            moves: Vec::new(),
            idle: BTreeMap::new(),
            until: room.until,
        };
        let pod = pods.iter().find(|(found, _)| found.name == *pod_set).map(|(_, pod)| pod.clone());
        // After a restart: a pod has its devices.
        let Some(pod) = pod.filter(|_| holders::holders_of(&mut state.world, &nomination).is_empty()) else {
            continue;
        };
        let planned = PlannedMove {
            pod: format!("{key}/{uid}/{number}"),
            owner: format!("{}/{uid}/{pod_set}", key.namespace),
            node: node.clone(),
            devices: devices.clone(),
        };
        places::keep_room(state, waiting(key), planned, pod, at(room.until));
    }
    state.checks.kept.insert(key.clone(), room.clone());
}

/// In place of a waiting pod: no pod has blanks in its name.
fn waiting(workload: &Key) -> Key {
    Key::cluster(format!("workload {workload}"))
}

/// Names of the checks to be answered.
fn ours(world: &World) -> BTreeSet<String> {
    let checks = world.cluster.objects().admission_checks.iter();
    checks
        .filter(|(_, controller)| *controller == CHECK_CONTROLLER)
        .map(|(key, _)| key.name.clone())
        .collect()
}

fn is_one_of(ours: &BTreeSet<String>, check: &Value) -> bool {
    check["name"].as_str().is_some_and(|name| ours.contains(name))
}

/// The Workload's checks of this controller.
fn own_checks<'w>(workload: &'w Workload, ours: &'w BTreeSet<String>) -> impl Iterator<Item = &'w Value> {
    workload.status.admission_checks.iter().filter(|check| is_one_of(ours, check))
}

/// The room written on the Workload.
fn room_of(workload: &Workload) -> Option<KeptRoom> {
    KeptRoom::decode(workload.metadata.annotations.as_ref()?.get(ROOM_ANNOTATION)?)
}

/// Whoever may change the Workload may have written the room: its end is capped.
fn is_in_force(room: &KeptRoom, now: Time) -> bool {
    let until = at(room.until);
    until > now && until <= now + LONGEST_GRACE + 2 * KEPT
}

fn timestamp(time: Time) -> Timestamp {
    i64::try_from(time.as_secs())
        .ok()
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or_default()
}
