//! The next step of a gang: pods scheduled all or nothing.
//!
//! Progress is read from pods and claims alone, so the next leader continues after a crash.
//!
//! ```text
//! open ──(all planned, then written)──> allocated ──(all seen allocated)──> lifted ──> bound
//!   ^                                       │                                 │
//!   └────────(not enough of them fit)───────┴───(not bound in time: partial.rs)┘
//! ```

use std::cmp::Reverse;

use tessera_cluster::gang::{self, GangId};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::group::{Gang, Member, SeatState, created};
use crate::intent::Intent;
use crate::nominations::{self};
use crate::order::{self, MemberPod};
use crate::pod::reference;
use crate::preempt::{self, Preemption};
use crate::selector_costs::{self, PAUSE};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::{build, commit, leadership, look, partial, paused, place, reserve, room, tell};

/// Time after its newest pod during which a gang of variable size waits for more pods.
const MORE_MAY_COME: Time = Time::from_secs(10);

/// Time after its newest pod at which an incomplete gang is reported.
const TELL_AFTER: Time = Time::from_secs(60);

/// Why a controller of this kind may never create all pods at once.
fn hint(owner: &str) -> Option<&'static str> {
    match owner {
        "ReplicaSet" => Some(
            "a Deployment updates its pods some at a time, and those of each revision are a gang of their own: as a gang \
             it needs strategy Recreate",
        ),
        "StatefulSet" => Some(
            "a StatefulSet makes each pod when the one before it is ready, which waits for its gang: it needs \
             podManagementPolicy Parallel, and for changes of its pods updateStrategy OnDelete and all of them deleted",
        ),
        _ => None,
    }
}

/// Next step for a gang with at least one waiting pod.
pub(crate) fn look_at_gang(state: &mut State, now: Time, id: &GangId) -> Vec<Intent> {
    let found = order::members_of(&state.world, &state.gangs, id);
    let pods: Vec<_> = found.iter().map(|(key, pod, _)| (key, pod.as_ref())).collect();
    nominations::with_nominated(state, now, &pods, |state| look_at_members(state, now, id, &found))
}

fn look_at_members(state: &mut State, now: Time, id: &GangId, found: &[MemberPod]) -> Vec<Intent> {
    if found.iter().all(|(key, ..)| !state.waits.contains(key)) {
        state.gangs.set_whole(id);
        return Vec::new();
    }
    for (key, ..) in found {
        state.waits.set_managed(key, true);
    }
    if let Err(error) = gang::agree(found.iter().map(|(key, _, member)| (key, member))) {
        tell::note_what_is_asked(state, found);
        return tell::tell_all(state, now, id, &WaitReason::Unfit(error.to_string()));
    }
    let gang = match build::sort_out(state, now, id, found) {
        Ok(gang) => gang,
        Err(why) => {
            tell::note_what_is_asked(state, found);
            return tell::gang_waits(state, now, id, &why);
        }
    };
    let mut intents = match is_complete(&mut state.gangs, now, &gang) {
        Ok(()) => go_on_with(state, now, &gang),
        Err(why) => {
            // A pod may have disappeared while devices were being allocated to the others.
            let mut intents = commit::hold_nothing(state, &gang, &why);
            let why = stays_incomplete(&mut state.gangs, now, &gang, why);
            intents.extend(tell::gang_waits(state, now, id, &why));
            intents
        }
    };
    let is_stuck = intents.iter().all(|intent| matches!(intent, Intent::Tell { .. }));
    intents.extend(partial::limit_partial(state, now, &gang, is_stuck));
    intents
}

/// Whether enough pods of the gang exist to start it.
fn is_complete(gangs: &mut Gangs, now: Time, gang: &Gang) -> Result<(), String> {
    let count = gang.members.len() + gang.done;
    let is_repaired = gang.bound_or_done() < gang.least() && count >= gang.least();
    if count < gang.min && !is_repaired {
        return Err(format!("gang {}: {count} of {} pods exist", gang.id, gang.min));
    }
    let more = gang.newest() + MORE_MAY_COME;
    if count < gang.size && gang.there() == 0 && more > now {
        gangs.set_due(&gang.id, more);
        return Err(format!("gang {}: {count} of {} pods exist; more may come", gang.id, gang.size));
    }
    Ok(())
}

/// The next step of the commit: allocate devices to pods without them, or lift the gates once all have theirs.
fn go_on_with(state: &mut State, now: Time, gang: &Gang) -> Vec<Intent> {
    let mut intents = Vec::new();
    // Pods without a gate are either on their way like any other pod, or were refused and need a new decision.
    for member in gang.in_state(&SeatState::Lifted).filter(|member| member.demand.is_some()) {
        if state.ledger.pods.proposal(&member.key).is_none() {
            intents.extend(look::look_at(state, now, &member.key));
        }
    }
    for member in gang.in_state(&SeatState::Astray) {
        intents.extend(commit::take_back_of(
            state,
            member,
            "its node is gone, or does not suit kube-scheduler",
        ));
    }
    if !intents.is_empty() {
        return intents;
    }
    let mut open = gang.open();
    let reached = gang.there() + gang.allocated().count();
    let mut needed = gang.min.saturating_sub(reached);
    // The pods that a growing gang started with come first.
    let lost = gang.least().saturating_sub(reached);
    if lost < needed && gang.members.len() + gang.done < gang.min {
        (open, needed) = (newest(open, lost), lost);
    }
    if open.is_empty() && lost > 0 {
        let why = WaitReason::Passing("waits until devices on another node are taken back".to_owned());
        return tell::gang_waits(state, now, &gang.id, &why);
    }
    if open.is_empty() {
        return commit::lift(state, now, gang);
    }
    if !leadership::may_allocate(&state.leadership) {
        let why = WaitReason::Passing("waits until the controller knows all allocations".to_owned());
        return tell::gang_waits(state, now, &gang.id, &why);
    }
    if let Some((why, until)) = paused::pause_of(&state.refusals, now, &open) {
        state.gangs.set_due(&gang.id, until);
        if lost == 0 && gang.allocated().next().is_some() {
            return commit::lift(state, now, gang);
        }
        open.retain(|member| state.refusals.paused(&reference(&member.pod), now).is_none());
        if lost == 0 || lost >= needed || open.len() < lost {
            return gives_way(state, now, gang, why);
        }
        (open, needed) = (newest(open, lost), lost);
    }
    let demands = open.iter().filter_map(|member| member.demand.as_ref());
    if let Some(why) = demands
        .into_iter()
        .find_map(|demand| selector_costs::unanswered(&mut state.world, &mut state.round, demand))
    {
        state.gangs.set_due(&gang.id, now + PAUSE);
        return tell::gang_waits(state, now, &gang.id, &WaitReason::Costly(why));
    }
    let mut placed = place::place(state, now, gang, &open, needed);
    if placed.is_err() && lost > 0 && lost < needed {
        (open, needed) = (newest(open, lost), lost);
        placed = place::place(state, now, gang, &open, needed);
    }
    match placed {
        Ok(placements) if !placements.is_empty() => commit::write(state, now, placements),
        // As many pods as fit already have their devices.
        Ok(_) => commit::lift(state, now, gang),
        // Pods that a growing gang lost have devices again; the added pods go on waiting.
        Err(_) if lost == 0 && gang.allocated().next().is_some() => commit::lift(state, now, gang),
        Err(why) => {
            if let Some(too_large) = room::too_large(state, gang, &open, needed) {
                return gives_way(state, now, gang, format!("{why}; {too_large}"));
            }
            if room::is_refused_everywhere(state, now, &open) {
                return gives_way(state, now, gang, format!("{why}; others pass it"));
            }
            reserve::stand_as_gang(state, now, gang, &open);
            let preemption = preempt::preempt(state, now, gang, &open, needed);
            let (under_way, kept): (Option<Preemption>, Option<Preemption>) = match preemption {
                Some(preemption) if preemption.is_under_way => (Some(preemption), None),
                other => (None, other),
            };
            if let Some(preemption) = under_way {
                intents.extend(preemption.intents);
                let why = WaitReason::Preempting(preemption.why);
                intents.extend(tell::gang_waits(state, now, &gang.id, &why));
                return intents;
            }
            let more = reserve::reserve_for(state, now, gang, &open, needed);
            let place = state.standing.place(&gang.id);
            let more = kept.map(|kept| kept.why).into_iter().chain(more).chain(place);
            let text = std::iter::once(why).chain(more).collect::<Vec<_>>().join("; ");
            intents.extend(commit::hold_nothing(state, gang, &text));
            let why =
                WaitReason::NoNode { text, keeps_place: !reserve::is_passed(&state.standing, now, gang) };
            intents.extend(tell::gang_waits(state, now, &gang.id, &why));
            intents
        }
    }
}

/// The newest of the pods: replacements of lost pods are newer than the pods added to a gang that cannot grow.
fn newest(mut open: Vec<&Member>, count: usize) -> Vec<&Member> {
    open.sort_by_key(|member| Reverse(created(&member.pod)));
    open.truncate(count);
    open
}

/// A gang without any remedy left: it gives up its devices, and other pods and gangs pass it.
fn gives_way(state: &mut State, now: Time, gang: &Gang, text: String) -> Vec<Intent> {
    let mut intents = commit::hold_nothing(state, gang, &text);
    let why = WaitReason::NoNode { text, keeps_place: false };
    intents.extend(tell::gang_waits(state, now, &gang.id, &why));
    intents
}

/// Wait reason of a gang with too few existing pods.
pub(crate) fn stays_incomplete(gangs: &mut Gangs, now: Time, gang: &Gang, why: String) -> WaitReason {
    let due = gang.newest() + TELL_AFTER;
    if now < due {
        gangs.set_due(&gang.id, due);
        return WaitReason::Passing(why);
    }
    let owners = gang.members.iter().flat_map(|member| member.pod.metadata.owner_references.iter().flatten());
    let hint = owners.filter(|owner| owner.controller == Some(true)).find_map(|owner| hint(&owner.kind));
    WaitReason::Unfit(hint.map_or_else(|| why.clone(), |hint| format!("{why}; {hint}")))
}
