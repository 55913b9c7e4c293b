//! Gangs with some pods running and no room for enough of the others.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{GangId, WhenPartial, partial_timeout};
use tessera_cluster::subject;
use tessera_placement::Time;

use crate::commit;
use crate::group::{Group, Member, SeatState, created};
use crate::intent::Intent;
use crate::pod::reference;
use crate::state::{Config, State};
use crate::upkeep::unready::has_controller;
use crate::world::World;

/// How long at least some pods may run while another cannot get devices as it is: an author or administrator may mend it, and claims that
/// the API server refused to change are tried again after five minutes.
const UNFIT: Time = Time::from_secs(600);

/// Pause before another look at a gang already given up.
const LOOK_AGAIN: Time = Time::from_secs(30);

/// Keeps a gang from running partially for long. `is_stuck`: no other action is possible for it now.
pub(crate) fn limit_partial(
    state: &mut State,
    now: Time,
    (gang, group): (&GangId, &Group),
    is_stuck: bool,
) -> Vec<Intent> {
    let is_running = group.in_state(&SeatState::Bound).any(Member::holds);
    let missing = group.least().saturating_sub(group.bound_or_done());
    let is_mended = state.gangs.set_unfit(gang, group.is_blocked());
    if !is_running || missing == 0 {
        state.gangs.set_whole(gang);
        return Vec::new();
    }
    if is_mended {
        state.gangs.restart_partial(gang, now);
    }
    let since = state.gangs.set_partial(gang, partial_since(&state.world, now, group, missing));
    // By then, a member not yet bound gets devices on another node, or the gang is given up if no node has room.
    let mut timeout = partial_timeout_of(&state.world, &state.config, group);
    if group.is_blocked() {
        timeout = timeout.max(UNFIT);
    }
    if now < since + timeout {
        state.gangs.set_due(&group.id, since + timeout);
        return Vec::new();
    }
    let is_open = group.there() + group.allocated().count() < group.least();
    let last = since + timeout * 5 / 3;
    if now < last && !(is_stuck && is_open) {
        state.gangs.set_due(&group.id, last);
        for member in group.in_state(&SeatState::Lifted) {
            // The next look takes its devices back and finds others.
            commit::refused(state, now, &member.key, &member.pod);
        }
        return Vec::new();
    }
    state.gangs.set_due(&group.id, now + LOOK_AGAIN);
    give_up(state, now, group, (now - since).as_secs() / 60)
}

/// How long some pods of the gang may run while the others find no room.
fn partial_timeout_of(world: &World, config: &Config, group: &Group) -> Time {
    let objects = world.cluster.objects();
    let seconds = group.members.iter().find_map(|member| partial_timeout(objects, &member.pod));
    seconds.map_or(config.partial_timeout, |seconds| Time::from_secs(seconds.into()))
}

/// Start of the partial state, as far as the objects show: when the last pod that runs, or is on its way, got its devices, but not before
/// the first of the missing pods was created. Pods added to a growing gang are older than the replacements of lost pods.
fn partial_since(world: &World, now: Time, group: &Group, missing: usize) -> Time {
    let holding = group.members.iter().filter(|member| member.holds());
    let allocated = holding.filter_map(|member| allocated_at(world, &member.pod)).max();
    let others =
        group.members.iter().filter(|member| !matches!(member.state, SeatState::Bound | SeatState::Done));
    let mut came: Vec<Time> = others.map(|member| created(&member.pod)).collect();
    came.sort_unstable_by_key(|created| Reverse(*created));
    let came = came.get(missing - 1).or(came.last()).copied();
    allocated.into_iter().chain(came).max().unwrap_or(now).min(now)
}

/// When the last of the pod's claims got its devices, in whole seconds.
fn allocated_at(world: &World, pod: &Pod) -> Option<Time> {
    let at = subject::allocated_at(world.cluster.objects(), pod)?;
    u64::try_from(at.as_second()).ok().map(Time::from_secs)
}

/// Takes devices back from pods not yet bound. Bound and released pods are evicted, or kept if the gang says so.
fn give_up(state: &mut State, now: Time, group: &Group, minutes: u64) -> Vec<Intent> {
    let running = group.in_state(&SeatState::Bound).count();
    let why = format!(
        "for {minutes} min only {running} pods of its gang {} run, which needs {}, and the others find no room",
        group.name(),
        group.least()
    );
    let timeout = partial_timeout_of(&state.world, &state.config, group);
    let mut intents = Vec::new();
    for member in &group.members {
        // A pod that has just got its devices is given time to be bound.
        let is_late = allocated_at(&state.world, &member.pod).is_none_or(|at| at + timeout <= now);
        if is_late && matches!(member.state, SeatState::Allocated(_) | SeatState::Lifted) {
            intents.extend(commit::take_back_of(state, member, &why));
        }
    }
    if group.when_partial == WhenPartial::Keep {
        return intents;
    }
    for member in &group.members {
        let is_out = matches!(member.state, SeatState::Bound | SeatState::Lifted);
        let pod = reference(&member.pod);
        let may = is_out && has_controller(&member.pod) && !state.ledger.pods.is_writing(&pod);
        if may && state.ledger.evictions.send(pod.clone(), None, now) {
            intents.push(Intent::Evict { pod, why: why.clone() });
        }
    }
    intents
}
