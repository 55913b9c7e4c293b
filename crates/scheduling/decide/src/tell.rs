//! Reasons for waiting: recorded on pods, and reported to their owners.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::group::GroupId;
use crate::intent::Intent;
use crate::order::{self, MemberPod};
use crate::pod::{limits_as_written, reference};
use crate::state::{Config, State};
use crate::wait_reason::WaitReason;
use crate::waits::Waits;

/// Records the wait reason on all waiting pods of the group, and reports it on the first one only.
pub(crate) fn group_waits(state: &mut State, now: Time, id: &GroupId, why: &WaitReason) -> Vec<Intent> {
    let mut members = order::members_of(&state.world, &state.gangs, id);
    members.retain(|member| state.waits.contains(&member.key));
    members.sort_by(|one, other| {
        let rank = |member: &MemberPod| member.membership.as_ref().map(|membership| membership.rank.clone());
        rank(one).cmp(&rank(other))
    });
    let mut intents = Vec::new();
    for (place, MemberPod { key, pod, .. }) in members.iter().enumerate() {
        if place == 0 {
            intents.extend(wait(&mut state.waits, now, key, pod, why.clone()));
        } else {
            state.waits.set_reason(key, why.clone());
        }
    }
    intents
}

/// Reports the reason on all pods of the group.
pub(crate) fn tell_all(state: &mut State, now: Time, id: &GroupId, why: &WaitReason) -> Vec<Intent> {
    let members = order::members_of(&state.world, &state.gangs, id);
    let told = members
        .iter()
        .filter_map(|member| wait(&mut state.waits, now, &member.key, &member.pod, why.clone()));
    told.collect()
}

pub(crate) fn release(state: &mut State, key: &Key, pod: &Pod, why: String) -> Intent {
    state.waits.set_reason(key, WaitReason::Passing(why.clone()));
    state.ledger.pods.release(&reference(pod));
    Intent::Release { pod: reference(pod), why }
}

/// Records why the pod waits, and returns an Event for its owner if the reason is new and worth reporting.
pub(crate) fn wait(waits: &mut Waits, now: Time, key: &Key, pod: &Pod, why: WaitReason) -> Option<Intent> {
    let topic = waits.set_reason_to_tell(key, &why, now)?;
    let message = match limits_as_written(pod) {
        Some(limits) => format!("asks for {limits}; {why}"),
        None => why.to_string(),
    };
    Some(Intent::Tell { pod: reference(pod), topic, message })
}

/// Events held back until now, because the last one about the pod was too recent.
pub(crate) fn held_back(state: &mut State, now: Time) -> Vec<Intent> {
    let held_back = state.waits.take_held_back(now).into_iter().filter_map(|(key, why)| {
        let pod = state.world.cluster.objects().pods.get(&key)?;
        wait(&mut state.waits, now, &key, pod, why)
    });
    held_back.collect()
}

/// Why the pod never gets managed cards, if its scheduler is not a configured one.
pub(crate) fn unknown_scheduler(config: &Config, pod: &Pod) -> Option<String> {
    let name = pod.scheduler_name();
    let is_known = config.schedulers.iter().any(|known| known == name);
    (!is_known).then(|| {
        format!(
            "its schedulerName is {name}, and managed cards are for pods of {} (chart values steering.schedulerName and \
             managed.schedulerNames)",
            config.schedulers.join(", ")
        )
    })
}

pub(crate) fn stays_behind(state: &mut State, now: Time, id: &GroupId) -> Option<Intent> {
    let GroupId::Pod(key) = id else { return None };
    if !state.waits.contains(key) || state.waits.reason(key) == Some(&WaitReason::Behind) {
        return None;
    }
    let pod = state.world.cluster.objects().pods.get(key)?.clone();
    wait(&mut state.waits, now, key, &pod, WaitReason::Behind)
}

/// Records the demand of pods waiting with their gang, even while the gang itself cannot be placed.
pub(crate) fn note_what_is_asked(state: &mut State, found: &[MemberPod]) {
    for MemberPod { key, pod, .. } in found.iter().filter(|found| found.pod.node_name().is_none()) {
        let Ok(demand) = Demand::of(state.world.cluster.objects(), pod) else { continue };
        if demand.obstacle().is_none() && demand.is_open() {
            state.waits.set_shape_text(key, Some(demand.text()));
        }
    }
}
