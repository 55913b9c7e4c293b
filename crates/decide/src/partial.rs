//! Gangs with some pods running and no room for enough of the others.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::ClaimExt;
use tessera_cluster::gang::{WhenPartial, partial_timeout};
use tessera_placement::Time;

use crate::commit;
use crate::group::{Gang, Member, SeatState, created};
use crate::intent::Intent;
use crate::pod::reference;
use crate::state::{Config, State};
use crate::upkeep::unready::has_controller;
use crate::world::World;

/// Pause before another look at a gang already given up.
const LOOK_AGAIN: Time = Time::from_secs(30);

/// Keeps a gang from running partially for long. `is_stuck`: no other action is possible for it now.
pub(crate) fn limit_partial(state: &mut State, now: Time, gang: &Gang, is_stuck: bool) -> Vec<Intent> {
    let is_running = gang.in_state(&SeatState::Bound).any(Member::holds);
    let missing = gang.least().saturating_sub(gang.bound_or_done());
    if !is_running || missing == 0 {
        state.gangs.set_whole(&gang.id);
        return Vec::new();
    }
    let since = state.gangs.set_partial(&gang.id, partial_since(&state.world, now, gang, missing));
    // By then, a member not yet bound gets devices on another node, or the gang is given up if no node has room.
    let timeout = partial_timeout_of(&state.world, &state.config, gang);
    if now < since + timeout {
        state.gangs.set_due(&gang.id, since + timeout);
        return Vec::new();
    }
    let is_open = gang.there() + gang.allocated().count() < gang.least();
    let last = since + timeout * 5 / 3;
    if now < last && !(is_stuck && is_open) {
        state.gangs.set_due(&gang.id, last);
        for member in gang.in_state(&SeatState::Lifted) {
            // The next look takes its devices back and finds others.
            commit::refused(state, now, &member.key, &member.pod);
        }
        return Vec::new();
    }
    state.gangs.set_due(&gang.id, now + LOOK_AGAIN);
    give_up(state, now, gang, (now - since).as_secs() / 60)
}

/// How long some pods of the gang may run while the others find no room.
fn partial_timeout_of(world: &World, config: &Config, gang: &Gang) -> Time {
    let objects = world.cluster.objects();
    let seconds = gang.members.iter().find_map(|member| partial_timeout(objects, &member.pod));
    seconds.map_or(config.partial_timeout, |seconds| Time::from_secs(seconds.into()))
}

/// Start of the partial state, as far as the objects show: when the last pod that runs, or is on its way, got its devices, but not before
/// the first of the missing pods was created. Pods added to a growing gang are older than the replacements of lost pods.
fn partial_since(world: &World, now: Time, gang: &Gang, missing: usize) -> Time {
    let holding = gang.members.iter().filter(|member| member.holds());
    let allocated = holding.filter_map(|member| allocated_at(world, &member.pod)).max();
    let others =
        gang.members.iter().filter(|member| !matches!(member.state, SeatState::Bound | SeatState::Done));
    let mut came: Vec<Time> = others.map(|member| created(&member.pod)).collect();
    came.sort_unstable_by_key(|created| Reverse(*created));
    let came = came.get(missing - 1).or(came.last()).copied();
    allocated.into_iter().chain(came).max().unwrap_or(now).min(now)
}

/// When the last of the pod's claims got its devices.
fn allocated_at(world: &World, pod: &Pod) -> Option<Time> {
    let subject = tessera_cluster::subject::of_pod(world.cluster.objects(), pod);
    let times = subject.claims.iter().filter_map(|wanted| {
        u64::try_from(wanted.claim.allocated_at()?.as_second()).ok().map(Time::from_secs)
    });
    times.max()
}

/// Takes devices back from pods not yet bound. Bound and released pods are evicted, or kept if the gang says so.
fn give_up(state: &mut State, now: Time, gang: &Gang, minutes: u64) -> Vec<Intent> {
    let running = gang.in_state(&SeatState::Bound).count();
    let why = format!(
        "for {minutes} min only {running} pods of its gang {} run, which needs {}, and the others find no room",
        gang.id.name,
        gang.least()
    );
    let timeout = partial_timeout_of(&state.world, &state.config, gang);
    let mut intents = Vec::new();
    for member in &gang.members {
        // A pod that has just got its devices is given time to be bound.
        let is_late = allocated_at(&state.world, &member.pod).is_none_or(|at| at + timeout <= now);
        if is_late && matches!(member.state, SeatState::Allocated(_) | SeatState::Lifted) {
            intents.extend(commit::take_back_of(state, member, &why));
        }
    }
    if gang.when_partial == WhenPartial::Keep {
        return intents;
    }
    for member in &gang.members {
        let is_out = matches!(member.state, SeatState::Bound | SeatState::Lifted);
        let pod = reference(&member.pod);
        let may = is_out && has_controller(&member.pod) && !state.ledger.pods.is_writing(&pod);
        if may && state.ledger.evictions.send(pod.clone(), None, now) {
            intents.push(Intent::Evict { pod, why: why.clone() });
        }
    }
    intents
}
