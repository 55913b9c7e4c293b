//! Groups without room: their place in the queue, preemption of others for them, and nodes reserved for them.

use k8s_openapi::jiff::Timestamp;
use tessera_placement::Time;

use crate::group::{Group, GroupId, Member};
use crate::intent::Intent;
use crate::preempt::{self, Preemption};
use crate::state::State;
use crate::victims::Shortage;
use crate::wait_reason::WaitReason;
use crate::{commit, leadership, on_the_way, reserve, room, teams, tell};

/// No node has room for enough of the open pods of managed cards.
pub(crate) fn no_room(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
    why: String,
) -> Vec<Intent> {
    // Some claims of a pod may have devices on a node without devices for the others.
    let mut intents = commit::take_back_parts(state, open, &why);
    // Checked before any plan: no eviction would help. Remains true regardless of the queue.
    if let Some(never) = room::never_fits(state, group, open, needed) {
        let why = WaitReason::NoNode { text: format!("{why}; {never}"), keeps_place: false };
        intents.extend(gives_way(state, now, group, why));
        return intents;
    }
    for member in open {
        state.waits.set_stuck(&member.key, group.is_alone());
    }
    let is_refused = room::is_refused_everywhere(state, now, open);
    // Nothing that becomes free would help, so nobody waits behind it.
    let allowance = teams::allowance(&state.world, open);
    let is_over_limit = room::asks_for_more_than_is_left(state, group, open, needed, allowance);
    let keeps_place = !is_refused && !is_over_limit && !reserve::is_passed(&state.standing, now, group);
    if keeps_place {
        reserve::stand(state, group, open);
    }
    let mut texts = vec![why];
    if is_refused {
        texts.push("others pass it".to_owned());
    }
    // Nodes refuse a gang for a reason that this loop does not foresee: eviction would hardly help.
    let may_preempt = group.is_alone() || !is_refused;
    let preemption =
        may_preempt.then(|| preemption(state, now, group, open, needed, Shortage::Room)).flatten();
    match preemption {
        Some(preemption) if preemption.is_under_way => {
            intents.extend(waits_for(state, now, group, preemption));
            return intents;
        }
        found => texts.extend(found.map(|found| found.why)),
    }
    texts.extend(guarantee_text(state, now, group));
    if is_over_limit {
        texts.push(teams::limit_text(&state.world, open));
        intents.extend(gives_way(state, now, group, WaitReason::TeamLimit(texts.join("; "))));
        return intents;
    }
    if let (GroupId::Gang(gang), false) = (&group.id, is_refused) {
        texts.extend(reserve::reserve_for(state, now, group, open, needed));
        texts.extend(state.standing.place(gang));
    }
    let text = texts.join("; ");
    // A reservation may just have ended.
    let keeps_place = keeps_place && !reserve::is_passed(&state.standing, now, group);
    intents.extend(gives_way(state, now, group, WaitReason::NoNode { text, keeps_place }));
    intents
}

/// What the team lacks of its guarantees, and when borrowers may next have to give devices back: as a time of day, which does not change
/// from round to round.
fn guarantee_text(state: &State, now: Time, group: &Group) -> Option<String> {
    let lacks = state.world.teams.guarantee_text(&state.world.cluster, group.id.namespace())?;
    let next = state.round.next_take_back.filter(|next| *next > now);
    let next = next.and_then(|next| Timestamp::from_second(i64::try_from(next.as_secs()).ok()?).ok());
    Some(match next {
        Some(next) => {
            format!("{lacks}; borrowed devices may be taken back from {} UTC", next.strftime("%H:%M:%S"))
        }
        None => lacks,
    })
}

/// Nodes have room, and the devices would exceed a limit of the team. The group holds up no other group, and keeps only the devices
/// nominated for it.
pub(crate) fn over_limit(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
    why: String,
) -> Vec<Intent> {
    let preemption = preemption(state, now, group, open, needed, Shortage::Limit);
    match preemption {
        Some(preemption) if preemption.is_under_way => waits_for(state, now, group, preemption),
        found => {
            let texts: Vec<String> = std::iter::once(why).chain(found.map(|found| found.why)).collect();
            gives_way(state, now, group, WaitReason::TeamLimit(texts.join("; ")))
        }
    }
}

/// Preemption for the group, if it may and anybody helps.
fn preemption(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
    shortage: Shortage,
) -> Option<Preemption> {
    let may_preempt = leadership::may_allocate(&state.leadership)
        && open.iter().filter_map(|member| member.demand.as_ref()).all(|demand| {
            !on_the_way::is_being_written(&state.ledger, demand) && demand.shared().next().is_none()
        });
    may_preempt.then(|| preempt::preempt(state, now, group, open, needed, shortage)).flatten()
}

/// The group waits for its victims to end.
fn waits_for(state: &mut State, now: Time, group: &Group, preemption: Preemption) -> Vec<Intent> {
    let mut intents = preemption.intents;
    let why = WaitReason::Preempting(preemption.why);
    intents.extend(tell::group_waits(state, now, &group.id, &why));
    intents
}

/// The group gives up its devices, and waits.
pub(crate) fn gives_way(state: &mut State, now: Time, group: &Group, why: WaitReason) -> Vec<Intent> {
    let mut intents = commit::hold_nothing(state, group, why.text());
    intents.extend(tell::group_waits(state, now, &group.id, &why));
    intents
}
