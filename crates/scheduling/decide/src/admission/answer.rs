//! Answers to checks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_api::kueue::{KeptPlace, KeptRoom, ROOM_OF_ANNOTATION};
use tessera_cluster::gang::{GangId, WhenPartial};
use tessera_cluster::kueue::Workload;
use tessera_cluster::{AllocationExt, Key};
use tessera_placement::Time;

use super::seats::{self, NoSeats};
use super::{Sent, UNTIL_SEEN, is_listed, is_one_of, keep, ours, own_checks, room_of, timestamp};
use crate::group::{Group, GroupId, Member, Placement};
use crate::intent::{Intent, WorkloadReference};
use crate::nominations::{LONGEST_GRACE, at};
use crate::plan::{self, Plan};
use crate::reserve::reserve_after;
use crate::room::largest;
use crate::selector_costs::PAUSE;
use crate::state::State;
use crate::world::World;
use crate::{hours_left, leadership, nodes};

/// Interval of looks at a Workload without room: quotas and templates change without a change of the fleet.
const LOOK: Time = Time::from_secs(30);

/// Pause before Kueue's first retry, and before the last ones. It doubles each time.
const RETRY: Time = Time::from_secs(60);
const LONGEST_RETRY: Time = Time::from_secs(3_600);

/// Longest annotation. All of an object's may have 256 KiB together.
const LONGEST_ANNOTATION: usize = 128 * 1024;

/// Longest message, in characters. The API server allows 32,768 bytes.
const LONGEST_MESSAGE: usize = 1_024;

/// The new state of the check.
enum Answer {
    Ready(KeptRoom),
    Pending,
    Retry(Time),
}

/// Answers the checks of Workloads that are due or, if the fleet changed, of all: in the order of priority, then of age. After the
/// groups of pods, which were admitted before.
pub(crate) fn answer_all(state: &mut State, now: Time) -> Vec<Intent> {
    let mut intents = Vec::new();
    if state.checks.pending.is_empty() || !may_answer(state) {
        return intents;
    }
    let all = state.checks.passed != Some(state.world.fleet.now());
    let checks = &state.checks;
    let due =
        checks.pending.iter().filter(|(key, due)| (all || **due <= now) && !checks.sent.contains_key(*key));
    let workloads = &state.world.cluster.objects().workloads;
    let due = due.filter_map(|(key, _)| Some((key.clone(), workloads.get(key)?.clone())));
    let mut due: Vec<_> = due.collect();
    due.sort_by_key(|(key, workload)| {
        let created = workload.metadata.creation_timestamp.as_ref().map(|created| created.0);
        // First the ones beyond the reach of an earlier round.
        let is_overdue = checks.pending.get(key).is_some_and(|due| *due <= now);
        (!is_overdue, Reverse(workload.spec.priority), created, key.clone())
    });
    for (key, workload) in due {
        if state.round.is_over(state.world.rankings.judged()) {
            state.checks.pending.insert(key, now);
            continue;
        }
        intents.extend(answer(state, now, &key, &workload));
    }
    state.checks.passed = Some(state.world.fleet.now());
    intents
}

/// Whether answers may be given.
pub(crate) fn may_answer(state: &State) -> bool {
    // No term allocates in a fleet without managed cards, where no room is kept either.
    let keeps_nothing = state.leadership.term.is_some() && !state.world.fleet.has_managed();
    (keeps_nothing || leadership::may_allocate(&state.leadership)) && is_listed(&state.world)
}

fn answer(state: &mut State, now: Time, key: &Key, workload: &Workload) -> Option<Intent> {
    // Its pods exist: the check came to its ClusterQueue later, and for a Retry Kueue would evict them.
    if workload.condition("Admitted").is_some() {
        let room = KeptRoom { until: timestamp(now), places: Vec::new() };
        let why = "it was admitted before this check was asked";
        return send(state, now, (key, workload), Answer::Ready(room), why);
    }
    let is_ready = own_checks(workload, &ours(&state.world)).all(|check| check["state"] == "Ready");
    if is_ready && room_of(workload).is_some_and(|room| at(room.until) > now) {
        return None;
    }
    let members = match seats::members(state, key, workload) {
        Ok(members) => members,
        Err(NoSeats::Unanswered) => {
            state.checks.pending.insert(key.clone(), now + PAUSE);
            return None;
        }
        Err(NoSeats::Obstacle(why)) => return no_room(state, now, (key, workload), &[], &why),
    };
    let open: Vec<&Member> = members.iter().collect();
    let group = group(key, workload, &members);
    state.round.count_search(state.world.fleet.len(), open.len());
    let plan = plan::plan(state, now, &group, &open, open.len());
    if let Some(why) = hours_left::over_budget(state, now, &group, (&open, open.len()), &plan) {
        return no_room(state, now, (key, workload), &open, &why);
    }
    match plan {
        Plan::Allocate(placements) => ready(state, now, (key, workload), &open, &placements),
        Plan::NoRoom(why) | Plan::OverLimit(why) | Plan::Leave(why) => {
            no_room(state, now, (key, workload), &open, &why)
        }
        Plan::Wait(why) => no_room(state, now, (key, workload), &open, why.text()),
        // Of pods outside gangs alone.
        Plan::Steer { why, .. } => no_room(state, now, (key, workload), &open, &why),
    }
}

/// The pods as a gang: Kueue admits all of them or none.
fn group(key: &Key, workload: &Workload, members: &[Member]) -> Group {
    let owner = workload.metadata.uid.clone().unwrap_or_default();
    let (namespace, name) = (key.namespace.clone(), key.name.clone());
    Group {
        id: GroupId::Gang(GangId { namespace, name, owner, attempt: String::new() }),
        size: members.len(),
        min: members.len(),
        when_partial: WhenPartial::Keep,
        done: 0,
        formed: 0,
        members: Vec::new(),
        unfit: None,
    }
}

fn reserve(state: &mut State, open: &[&Member]) -> Time {
    let asked = largest(open).map(|demand| nodes::pools_asked(&mut state.world, demand)).unwrap_or_default();
    reserve_after(&state.world, &asked).min(LONGEST_GRACE)
}

fn ready(
    state: &mut State,
    now: Time,
    (key, workload): (&Key, &Workload),
    open: &[&Member],
    placements: &[Placement<'_>],
) -> Option<Intent> {
    let until = timestamp(now + reserve(state, open));
    let world = &state.world;
    let places = placements.iter().filter_map(|placement| place(world, workload, placement)).collect();
    let mut room = KeptRoom { until, places };
    let is_too_long = room.encode().len() > LONGEST_ANNOTATION;
    if is_too_long {
        room.places.clear();
    }
    let nodes: BTreeSet<&str> = room.places.iter().map(|place| place.node.as_str()).collect();
    let message = match nodes.len() {
        0 if is_too_long => "no room is kept: it would be too long to be written on the Workload".to_owned(),
        0 => "no room is kept: no claim of it asks for whole devices of managed pools".to_owned(),
        1..=3 => format!("room is kept on {} until {until}", Vec::from_iter(nodes).join(", ")),
        count => format!("room is kept on {count} nodes until {until}"),
    };
    send(state, now, (key, workload), Answer::Ready(room), &message)
}

/// The place of a pod. Shares are not kept: a place is whole devices, and would keep others from the rest.
fn place(world: &World, workload: &Workload, placement: &Placement<'_>) -> Option<KeptPlace> {
    let results = placement.fit.allocations.iter().flat_map(AllocationExt::results);
    let results: Vec<_> = results.filter(|result| result.driver == world.driver).collect();
    let is_whole =
        results.iter().all(|result| result.share_id.is_none() && result.admin_access != Some(true));
    let index = usize::try_from(placement.member.rank.job).ok()?;
    (is_whole && !results.is_empty()).then_some(KeptPlace {
        pod_set: workload.spec.pod_sets.get(index)?.name.clone(),
        node: placement.node.clone(),
        devices: results.into_iter().map(|result| result.device.clone()).collect(),
    })
}

fn no_room(
    state: &mut State,
    now: Time,
    (key, workload): (&Key, &Workload),
    open: &[&Member],
    why: &str,
) -> Option<Intent> {
    let reserve = reserve(state, open);
    let since = workload.condition("QuotaReserved").map(|condition| at(condition.last_transition_time.0))?;
    let end = since + reserve;
    if now < end {
        state.checks.pending.insert(key.clone(), end.min(now + LOOK));
        return send(state, now, (key, workload), Answer::Pending, why);
    }
    let ours = ours(&state.world);
    let retries = own_checks(workload, &ours).filter_map(|check| check["retryCount"].as_u64()).max();
    let doubled = 2_u32.saturating_pow(retries.unwrap_or(0).try_into().unwrap_or(u32::MAX));
    let pause = RETRY.min(reserve.max(Time::from_secs(1))).saturating_mul(doubled).min(LONGEST_RETRY);
    let why = format!("no room for {} s, asked again after {} s: {why}", reserve.as_secs(), pause.as_secs());
    send(state, now, (key, workload), Answer::Retry(pause), &why)
}

/// The write of an answer, unless it stands there already.
fn send(
    state: &mut State,
    now: Time,
    (key, workload): (&Key, &Workload),
    answer: Answer,
    message: &str,
) -> Option<Intent> {
    let ours = ours(&state.world);
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    let name = match &answer {
        Answer::Ready(_) => "Ready",
        Answer::Pending => "Pending",
        Answer::Retry(_) => "Retry",
    };
    let (mut is_changed, mut is_told) = (false, true);
    for check in own_checks(workload, &ours) {
        is_changed |= check["state"] != name;
        is_told &= check["message"] == message.as_str();
    }
    let may_tell = state.checks.told.get(key).is_none_or(|told| *told + LOOK <= now);
    if !is_changed && matches!(answer, Answer::Pending) && (is_told || !may_tell) {
        return None;
    }
    state.checks.told.insert(key.clone(), now);
    let uid = workload.metadata.uid.clone().unwrap_or_default();
    let mut checks = workload.status.admission_checks.clone();
    for check in checks.iter_mut().filter(|check| is_one_of(&ours, check)) {
        if check["state"] != name {
            check["lastTransitionTime"] = json!(timestamp(now).to_string());
        }
        check["state"] = json!(name);
        check["message"] = json!(message);
        match &answer {
            Answer::Retry(pause) => check["requeueAfterSeconds"] = json!(pause.as_secs()),
            Answer::Ready(room) if !room.places.is_empty() => {
                check["podSetUpdates"] = updates(workload, &uid)
            }
            _ => {}
        }
    }
    let room = match answer {
        Answer::Ready(room) => Some(room),
        _ => None,
    };
    let sent = Sent {
        uid: uid.clone(),
        answer: (name.to_owned(), message),
        room: room.clone(),
        until: now + UNTIL_SEEN,
    };
    state.checks.sent.insert(key.clone(), sent);
    keep(state, key, room.as_ref().map(|room| (workload, room)));
    let reference = WorkloadReference {
        api_version: workload.api_version.clone(),
        key: key.clone(),
        uid,
        resource_version: workload.metadata.resource_version.clone().unwrap_or_default(),
    };
    let written = room.filter(|room| !room.places.is_empty()).map(|room| room.encode());
    let room = (written.is_some() || room_of(workload).is_some()).then_some(written);
    Some(Intent::Answer { workload: reference, checks, room })
}

/// The annotation by which pods get the room.
fn updates(workload: &Workload, uid: &str) -> Value {
    let pod_sets = workload.spec.pod_sets.iter();
    let update =
        |name: &str| json!({ "name": name, "annotations": { ROOM_OF_ANNOTATION: format!("{uid}/{name}") } });
    pod_sets.map(|pod_set| update(&pod_set.name)).collect()
}
