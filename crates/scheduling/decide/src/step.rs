//! The next step of a group: of a gang, whose pods start together, or of a pod alone.
//!
//! The step is read from pods, claims and rows of the ledger alone, so the next leader continues after a crash.
//!
//! ```text
//! open ──(all planned, then written)──> allocated ──(all seen allocated)──> lifted ──> bound
//!   ^                                       │                                 │
//!   └────────(not enough of them fit)───────┴───(not bound in time: partial.rs)┘
//! ```

use std::cmp::Reverse;

use tessera_cluster::{ClaimExt, PodExt, gang};
use tessera_placement::Time;

use crate::build::{self, Obstacle};
use crate::gangs::Gangs;
use crate::group::{Group, GroupId, Member, SeatState, created};
use crate::idle::successors;
use crate::intent::Intent;
use crate::order::{self, MemberPod};
use crate::plan::{self, Plan};
use crate::pod::reference;
use crate::selector_costs::{self, PAUSE};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::{
    commit, holders, hours_left, incomplete, leadership, no_room, nodes, nominations, on_the_way, partial,
    paused, places, teams, tell,
};

/// Pause before the next look at a group for which its team's hours do not last.
const BUDGET_AGAIN: Time = Time::from_secs(600);

/// Next step of a group.
enum Step<'g> {
    /// Not enough of its pods exist.
    Incomplete(String),
    /// One of its pods cannot get devices as it is.
    Unfit(String),
    /// Devices on another node have to be taken back first.
    Wait,
    /// Enough pods have devices: remove the gates.
    Lift,
    /// Devices for these pods, of which `needed` must get theirs. `lost`: number of lost pods of a gang that grows or is whole.
    Place { open: Vec<&'g Member>, needed: usize, lost: usize },
}

/// The next step for a group with at least one waiting pod.
pub(crate) fn examine(state: &mut State, now: Time, id: &GroupId) -> Vec<Intent> {
    let found = order::members_of(&state.world, &state.gangs, id);
    let pods: Vec<_> = found.iter().map(|found| (&found.key, found.pod.as_ref())).collect();
    nominations::with_nominated(state, now, &pods, |state| {
        places::with_own(state, &pods, |state| examine_members(state, now, id, &found))
    })
}

fn examine_members(state: &mut State, now: Time, id: &GroupId, found: &[MemberPod]) -> Vec<Intent> {
    if found.iter().all(|found| !state.waits.contains(&found.key)) {
        id.gang().inspect(|gang| state.gangs.set_whole(gang));
        return Vec::new();
    }
    if id.gang().is_some() {
        found.iter().for_each(|found| state.waits.set_managed(&found.key, true));
    }
    let memberships = found.iter().filter_map(|found| Some((&found.key, found.membership.as_ref()?)));
    if let Err(error) = gang::agree(memberships) {
        tell::note_what_is_asked(state, found);
        return tell::tell_all(state, now, id, &WaitReason::Unfit(error.to_string()));
    }
    let group = match build::group_of(state, now, id, found) {
        Ok(group) => group,
        Err(blocked) => {
            let (key, obstacle) = *blocked;
            return match id {
                GroupId::Pod(_) => {
                    found.first().map_or_else(Vec::new, |found| alone(state, now, found, obstacle))
                }
                GroupId::Gang(_) => {
                    tell::note_what_is_asked(state, found);
                    if let Obstacle::Failed(until) = &obstacle {
                        state.gangs.set_due(id, *until);
                    } else if obstacle.is_others_part() {
                        state.gangs.set_due(id, now + build::AWAITED);
                    }
                    let why = WaitReason::Passing(format!("pod {key} of the gang: {obstacle}"));
                    tell::group_waits(state, now, id, &why)
                }
            };
        }
    };
    for member in &group.members {
        state.waits.set_stuck(&member.key, false);
        if group.is_alone() && member.demand.is_some() {
            state.waits.set_managed(&member.key, false);
        }
    }
    let mut intents = take(state, now, &group);
    if let Some((key, why)) = group.unfit.as_ref().filter(|_| !group.is_blocked())
        && let Some(member) = group.members.iter().find(|member| member.key == *key)
    {
        let why = WaitReason::Unfit(why.clone());
        intents.extend(tell::wait(&mut state.waits, now, key, &member.pod, why));
    }
    if let GroupId::Gang(gang) = id {
        let is_stuck = intents.iter().all(|intent| matches!(intent, Intent::Tell { .. }));
        intents.extend(partial::limit_partial(state, now, (gang, &group), is_stuck));
    }
    intents
}

/// What becomes of a pod outside gangs with an obstacle.
fn alone(state: &mut State, now: Time, found: &MemberPod, obstacle: Obstacle) -> Vec<Intent> {
    let MemberPod { key, pod, .. } = found;
    let is_gated = pod.is_gated();
    let text = obstacle.to_string();
    let is_refused = matches!(obstacle, Obstacle::ClaimRefused(_));
    if !matches!(obstacle, Obstacle::Writing | Obstacle::Failed(_)) {
        state.waits.set_managed(key, false);
        state.waits.set_stuck(key, false);
    }
    let why = match obstacle {
        Obstacle::Writing => return Vec::new(),
        Obstacle::Failed(_) => {
            state.waits.mark_due(key);
            return Vec::new();
        }
        Obstacle::OtherGate(_)
        | Obstacle::ClaimsWriting
        | Obstacle::NoClaimsYet
        | Obstacle::NoTemplateYet(_) => WaitReason::Passing(text),
        Obstacle::Paused { until, .. } => {
            state.gangs.set_due(&GroupId::Pod(key.clone()), until);
            state.waits.set_managed(key, true);
            WaitReason::Unfit(text)
        }
        // Gangs exist only for managed cards.
        Obstacle::Membership(_) | Obstacle::ClaimRefused(_) | Obstacle::Shared(_) => {
            state.waits.set_managed(key, true);
            WaitReason::Unfit(text)
        }
        Obstacle::Unreadable(_) if is_gated => return vec![tell::release(state, key, pod, text)],
        Obstacle::Unreadable(_) => return Vec::new(),
        Obstacle::Pod { is_of_others: true, .. } if is_gated => {
            return vec![tell::release(state, key, pod, text)];
        }
        Obstacle::Pod { obstacle, .. } => {
            state.waits.set_managed(key, !is_gated && obstacle.is_unserved());
            if !is_gated && !obstacle.is_unserved() {
                return Vec::new();
            }
            WaitReason::Unfit(text)
        }
        Obstacle::Scheduler { holds, .. } => return leave_to_its_scheduler(state, now, found, text, holds),
    };
    // Others of its claims may have devices that are of no use without this one.
    let parts =
        is_refused.then(|| state.world.rankings.demand(state.world.cluster.objects(), pod).ok()).flatten();
    let taken = parts.and_then(|demand| commit::take_back(state, key, pod, &demand, why.text()));
    taken.into_iter().chain(tell::wait(&mut state.waits, now, key, pod, why)).collect()
}

/// Leaves a pod to its scheduler: removes our gate, takes our devices back, or reports the reason if the pod asks for managed cards.
fn leave_to_its_scheduler(
    state: &mut State,
    now: Time,
    found: &MemberPod,
    why: String,
    has_devices: bool,
) -> Vec<Intent> {
    let MemberPod { key, pod, .. } = found;
    if pod.is_gated() {
        return vec![tell::release(state, key, pod, why)];
    }
    let Ok(demand) = state.world.rankings.demand(state.world.cluster.objects(), pod) else {
        return Vec::new();
    };
    if has_devices {
        return commit::take_back(state, key, pod, &demand, &why).into_iter().collect();
    }
    if !state.world.fleet.has_managed() {
        return Vec::new();
    }
    let why = match selector_costs::unanswered(&mut state.world, &mut state.round, &demand) {
        Some(costly) => {
            state.waits.set_pause(key, now + PAUSE);
            WaitReason::Costly(costly)
        }
        None if nodes::ranked(&mut state.world, &demand).ranking.is_empty() => return Vec::new(),
        None => WaitReason::Unfit(why),
    };
    state.waits.set_managed(key, true);
    tell::wait(&mut state.waits, now, key, pod, why).into_iter().collect()
}

/// The next step, from the states of the pods.
fn step_of<'g>(gangs: &mut Gangs, now: Time, group: &'g Group) -> Step<'g> {
    if let Err(why) = incomplete::is_complete(gangs, now, group) {
        return Step::Incomplete(why);
    }
    if let Some((_, why)) = group.unfit.as_ref().filter(|_| group.is_blocked()) {
        return Step::Unfit(why.clone());
    }
    let mut open = group.open();
    let reached = group.there() + group.allocated().count();
    let mut needed = group.min.saturating_sub(reached);
    // The pods that a growing gang started with come first.
    let lost = group.least().saturating_sub(reached);
    if lost < needed && group.members.len() + group.done < group.min {
        (open, needed) = (newest(open, lost), lost);
    }
    match open.is_empty() {
        true if lost > 0 => Step::Wait,
        true => Step::Lift,
        false => Step::Place { open, needed, lost },
    }
}

/// Takes the next step.
fn take(state: &mut State, now: Time, group: &Group) -> Vec<Intent> {
    adopt(state, now, group);
    let step = step_of(&mut state.gangs, now, group);
    if matches!(step, Step::Wait | Step::Lift | Step::Place { .. }) {
        let taken = take_back_astray(state, group);
        if !taken.is_empty() {
            return taken;
        }
    }
    match step {
        Step::Incomplete(why) => {
            // A pod may have disappeared while devices were being allocated to the others.
            let mut intents = commit::hold_nothing(state, group, &why);
            let why = incomplete::stays_incomplete(&mut state.gangs, now, group, why);
            intents.extend(tell::group_waits(state, now, &group.id, &why));
            intents
        }
        Step::Unfit(why) => {
            let mut intents = commit::hold_nothing(state, group, &why);
            intents.extend(tell::group_waits(state, now, &group.id, &WaitReason::Unfit(why)));
            intents
        }
        Step::Wait => astray_waits(state, now, group),
        Step::Lift => commit::lift(state, now, group),
        Step::Place { open, needed, lost } => place(state, now, group, open, needed, lost),
    }
}

/// Devices on nodes that are gone, or do not suit the pods, are taken back before others are sought.
fn take_back_astray(state: &mut State, group: &Group) -> Vec<Intent> {
    let why = "its node is gone, or does not suit kube-scheduler";
    let astray = group.in_state(&SeatState::Astray);
    astray.filter_map(|member| commit::take_back_of(state, member, why)).collect()
}

/// Some devices cannot be taken back now: another pod on its way uses them, or the API server refuses.
fn astray_waits(state: &mut State, now: Time, group: &Group) -> Vec<Intent> {
    let astray: Vec<&Member> = group.in_state(&SeatState::Astray).collect();
    let why = match paused::pause_of(&state.refusals, now, group, &astray) {
        Some((why, until)) => {
            state.gangs.set_due(&group.id, until);
            group.members.iter().for_each(|member| state.waits.set_managed(&member.key, true));
            WaitReason::Unfit(why)
        }
        None => WaitReason::Passing("waits until devices on another node are taken back".to_owned()),
    };
    tell::group_waits(state, now, &group.id, &why)
}

/// Follows pods with devices from this controller and without a gate that another process sent on their way.
fn adopt(state: &mut State, now: Time, group: &Group) {
    for member in group.in_state(&SeatState::Lifted) {
        let Some(demand) = &member.demand else { continue };
        let mut ours = demand.subject.claims.iter().map(|wanted| &wanted.claim);
        let ours = ours.find(|claim| holders::is_unused(&state.world, claim));
        if let Some(node) = ours.and_then(|claim| claim.allocated_node()).map(str::to_owned) {
            on_the_way::count_as_sent(&mut state.world, &mut state.ledger, now, member, &node);
        }
    }
}

/// Plans devices for the open pods, and begins to carry out the plan.
fn place(
    state: &mut State,
    now: Time,
    group: &Group,
    mut open: Vec<&Member>,
    mut needed: usize,
    lost: usize,
) -> Vec<Intent> {
    if !group.is_alone() && !leadership::may_allocate(&state.leadership) {
        let leads = state.leadership.term.is_some() && !state.world.fleet.has_managed();
        let why = plan::no_managed_pool(&state.world).filter(|_| leads).unwrap_or_else(plan::too_early);
        return tell::group_waits(state, now, &group.id, &why);
    }
    let has_allocated = group.allocated().next().is_some();
    if let Some((why, until)) = paused::pause_of(&state.refusals, now, group, &open) {
        state.gangs.set_due(&group.id, until);
        if lost == 0 && has_allocated {
            return commit::lift(state, now, group);
        }
        open.retain(|member| state.refusals.paused(&reference(&member.pod), now).is_none());
        if lost == 0 || lost >= needed || open.len() < lost {
            return no_room::gives_way(state, now, group, WaitReason::Unfit(why));
        }
        (open, needed) = (newest(open, lost), lost);
    }
    let mut demands = open.iter().filter_map(|member| member.demand.as_ref());
    let unanswered =
        demands.find_map(|demand| selector_costs::unanswered(&mut state.world, &mut state.round, demand));
    if let Some(why) = unanswered {
        return costly(state, now, group, why);
    }
    let held_back = successors::held_back(state, group);
    if let Some(why) = held_back.filter(|_| successors::do_others_wait(state, now, group, &open)) {
        let mut intents = withdraw_nominations(&open);
        intents.extend(no_room::gives_way(state, now, group, WaitReason::IdleEvicted(why.to_owned())));
        return intents;
    }
    let mut plan = plan::plan(state, now, group, &open, needed);
    if matches!(plan, Plan::NoRoom(_) | Plan::OverLimit(_)) && lost > 0 && lost < needed {
        (open, needed) = (newest(open, lost), lost);
        plan = plan::plan(state, now, group, &open, needed);
    }
    // Replacements in a running gang have their hours.
    let goes_on = lost > 0 && (has_allocated || group.there() > 0);
    let over_budget =
        if goes_on { None } else { hours_left::over_budget(state, now, group, (&open, needed), &plan) };
    if let Some(why) = over_budget {
        if lost == 0 && has_allocated {
            return commit::lift(state, now, group);
        }
        // Towards the end of the period fewer hours are enough.
        if open.iter().any(|member| teams::deadline(&member.pod).is_some()) {
            state.gangs.set_due(&group.id, now + BUDGET_AGAIN);
        }
        let mut intents = commit::take_back_parts(state, &open, &why);
        intents.extend(withdraw_nominations(&open));
        intents.extend(no_room::gives_way(state, now, group, WaitReason::TeamBudget(why)));
        return intents;
    }
    match plan {
        Plan::Allocate(placements) if !placements.is_empty() => commit::write(state, now, group, placements),
        // As many pods as fit already have their devices.
        Plan::Allocate(_) => commit::lift(state, now, group),
        // Pods that a growing gang lost have devices again; the added pods go on waiting.
        Plan::NoRoom(_) | Plan::OverLimit(_) if lost == 0 && has_allocated => commit::lift(state, now, group),
        Plan::NoRoom(why) | Plan::OverLimit(why) if held_back.is_some() => {
            let why = WaitReason::IdleEvicted(format!("{}; {why}", held_back.unwrap_or_default()));
            no_room::gives_way(state, now, group, why)
        }
        Plan::OverLimit(why) => no_room::over_limit(state, now, group, &open, needed, why),
        Plan::NoRoom(why) => no_room::no_room(state, now, group, &open, needed, why),
        Plan::Steer { node, why } => {
            open.iter().filter_map(|pod| commit::steer(state, pod, &node, &why)).collect()
        }
        Plan::Leave(why) => {
            let gated = open.iter().filter(|member| member.pod.is_gated());
            gated.map(|member| tell::release(state, &member.key, &member.pod, why.clone())).collect()
        }
        Plan::Wait(why) => tell::group_waits(state, now, &group.id, &why),
    }
}

fn withdraw_nominations(open: &[&Member]) -> Vec<Intent> {
    let nominated = open.iter().filter(|member| nominations::nomination(&member.pod).is_some());
    nominated.map(|member| Intent::Nominate { pod: reference(&member.pod), nomination: None }).collect()
}

/// The selectors of a pod's claims take several rounds.
fn costly(state: &mut State, now: Time, group: &Group, why: String) -> Vec<Intent> {
    match &group.id {
        GroupId::Gang(_) => state.gangs.set_due(&group.id, now + PAUSE),
        GroupId::Pod(pod) => {
            let is_gated = group.members.iter().any(|member| member.pod.is_gated());
            state.waits.set_managed(pod, !is_gated);
            // Other events must not use up the next rounds' budgets for it.
            state.waits.set_pause(pod, now + PAUSE);
        }
    }
    tell::group_waits(state, now, &group.id, &WaitReason::Costly(why))
}

/// The newest of the pods: replacements of lost pods are newer than the pods added to a gang that cannot grow.
fn newest(mut open: Vec<&Member>, count: usize) -> Vec<&Member> {
    open.sort_by_key(|member| Reverse(created(&member.pod)));
    open.truncate(count);
    open
}
