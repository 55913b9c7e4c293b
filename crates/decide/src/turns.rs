//! Choice and order of the pods and gangs to examine.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, gang};
use tessera_placement::Time;

use crate::group::Gang;
use crate::intent::Intent;
use crate::pod::reference;
use crate::queue::{Order, Queue, Who};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::waits::Waits;
use crate::world::World;
use crate::{leadership, look, nominations, on_the_way, order, preempt, reserve, room, step, tell};

/// A pod or gang to be examined.
pub(crate) struct Turn {
    who: Who,
    order: Order,
    /// Whether the pod itself changed or is due.
    is_due: bool,
}

/// The pods and gangs to examine, in queue order: all waiting ones if the fleet changed, else only changed or due ones.
pub(crate) fn turns(state: &mut State, now: Time) -> Vec<Turn> {
    let all = !state.waits.is_passed(state.world.fleet.now());
    let mut due_pods = state.waits.take_due();
    let due = state.gangs.take_due(now);
    let mut turns: BTreeSet<(Order, Who)> = BTreeSet::new();
    let mut gangs = BTreeSet::new();
    for gang in due {
        if state.gangs.members(&gang).next().is_some() {
            gangs.insert(gang);
        } else {
            // A pod with a preemption under way is listed as a gang of its own.
            due_pods
                .extend(Some(Key::new(gang.namespace, gang.name)).filter(|pod| state.waits.contains(pod)));
        }
    }
    let mut pods = due_pods.clone();
    if all {
        pods.extend(state.waits.pods().cloned());
    }
    for key in pods {
        let Some(pod) = state.world.cluster.objects().pods.get(&key) else { continue };
        match state.gangs.of(&key) {
            Some(gang) => drop(gangs.insert(gang.clone())),
            None => drop(turns.insert((Order::of(pod), Who::Pod(key)))),
        }
    }
    turns.extend(
        gangs.into_iter().map(|gang| (order::order_of(&state.world, &state.gangs, &gang), Who::Gang(gang))),
    );
    if all {
        let all: Vec<Who> = turns.iter().map(|(_, who)| who.clone()).collect();
        state.standing.begin_anew(&all);
    }
    let is_due = |who: &Who| matches!(who, Who::Pod(key) if due_pods.contains(key));
    turns.into_iter().map(|(order, who)| Turn { is_due: is_due(&who), who, order }).collect()
}

/// Whether nothing can have changed for a pod without a suitable card at the last look: someone ahead waits for cards in every pool.
/// In a long strict queue, nearly all pods are in this state.
fn is_behind(world: &mut World, waits: &Waits, standing: &Queue, turn: &Turn) -> bool {
    let Who::Pod(key) = &turn.who else { return false };
    let is_stuck = waits.is_stuck(key);
    let strict = world.fleet.strict(&world.cluster, &world.driver);
    !turn.is_due && is_stuck && strict.is_everything && standing.is_behind(&turn.order, &strict.pools)
}

/// Examines all due pods and gangs, and once more if anything kept for one of them is available to others now.
pub(crate) fn take_all(state: &mut State, now: Time) -> Vec<Intent> {
    let due = turns(state, now);
    let (mut intents, has_freed) = take_turns(state, now, due);
    // Pods sent in this pass only took room: demand without a fit before still has none.
    state.waits.set_passed(state.world.fleet.now());
    if has_freed {
        state.waits.begin_anew();
        state.round.forget_victims();
        let due = turns(state, now);
        let (mut looked, has_freed) = take_turns(state, now, due);
        looked.retain(|intent| !intents.contains(intent));
        intents.extend(looked);
        state.waits.set_passed(state.world.fleet.now());
        if has_freed {
            state.waits.begin_anew();
        }
    }
    intents
}

/// Examines these in order. Also returns whether something is no longer kept for one of them, so others may use it.
pub(crate) fn take_turns(state: &mut State, now: Time, turns: Vec<Turn>) -> (Vec<Intent>, bool) {
    let mut intents = Vec::new();
    let mut has_freed = false;
    for turn in turns {
        if is_behind(&mut state.world, &state.waits, &state.standing, &turn) {
            intents.extend(tell::stays_behind(state, now, &turn.who));
            continue;
        }
        let who = turn.who;
        state.standing.reservations.begin_turn(&who);
        let looked = match &who {
            Who::Pod(key) => look_at_pod(state, now, key),
            Who::Gang(gang) => step::look_at_gang(state, now, gang),
        };
        for intent in &looked {
            if let Intent::Steer { pod, .. } | Intent::Release { pod, .. } | Intent::Allocate { pod, .. } =
                intent
            {
                state.ledger.pods.write(pod);
            }
        }
        intents.extend(looked);
        has_freed |= state.standing.reservations.end_turn(&who);
        has_freed |= nominations::has_freed_nominated(&mut state.preempting);
    }
    (intents, has_freed)
}

/// Next step for a pod outside any gang.
pub(crate) fn look_at_pod(state: &mut State, now: Time, key: &Key) -> Vec<Intent> {
    if !state.waits.contains(key) {
        return Vec::new();
    }
    let Some(pod) = state.world.cluster.objects().pods.get(key).cloned() else { return Vec::new() };
    if state.waits.pause(key, now).is_some() {
        state.waits.mark_due(key);
        return Vec::new();
    }
    let pods = &state.ledger.pods;
    let is_under_way = pods.is_released(key) || pods.proposal(key).is_some();
    if is_under_way || pods.is_writing(&reference(&pod)) {
        return Vec::new();
    }
    state.waits.set_stuck(key, false);
    if let Err(error) = gang::of_pod(state.world.cluster.objects(), &pod) {
        // Gangs exist only for managed cards.
        state.waits.set_managed(key, true);
        let why = WaitReason::Unfit(error.to_string());
        return tell::wait(&mut state.waits, now, key, &pod, why).into_iter().collect();
    }
    nominations::with_nominated(state, now, &[(key, &pod)], |state| {
        let mut intents: Vec<Intent> = look::look_at(state, now, key).into_iter().collect();
        if state.waits.is_stuck(key) {
            intents.extend(stand_and_preempt(state, now, key, &pod));
        }
        intents
    })
}

/// Keeps the queue position of a pod without a suitable node, and preempts others for it if possible.
fn stand_and_preempt(state: &mut State, now: Time, key: &Key, pod: &Arc<Pod>) -> Vec<Intent> {
    let Ok(demand) = state.world.rankings.demand(state.world.cluster.objects(), pod) else {
        return Vec::new();
    };
    let mut text = state.waits.reason(key).map(WaitReason::to_string).unwrap_or_default();
    // Checked before any plan: no eviction would help.
    if room::fits_no_empty_node(state, &demand) {
        // Remains true regardless of the queue, so the reason must not be replaced by another.
        state.waits.set_stuck(key, false);
        let text = format!("{text}; no node could take it if it were empty: others pass it");
        let why = WaitReason::NoNode { text, keeps_place: false };
        return tell::wait(&mut state.waits, now, key, pod, why).into_iter().collect();
    }
    let order = Order::of(pod);
    let keeps_place = !room::is_refused_wherever_it_fits(state, now, &demand, pod);
    if keeps_place {
        reserve::stand(state, &order, &Who::Pod(key.clone()), &demand);
    } else {
        text.push_str("; others pass it");
    }
    let may_preempt = leadership::may_allocate(&state.leadership)
        && !on_the_way::is_being_written(&state.ledger, &demand)
        && demand.shared().next().is_none();
    let gang = may_preempt.then(|| Gang::of_one(key, pod, demand));
    let preemption = gang.and_then(|gang| preempt::preempt(state, now, &gang, &gang.open(), 1));
    let (mut intents, why) = match preemption {
        Some(preemption) if preemption.is_under_way => {
            (preemption.intents, WaitReason::Preempting(preemption.why))
        }
        other => {
            let more = other.map(|preemption| format!("; {}", preemption.why));
            text.extend(more);
            (Vec::new(), WaitReason::NoNode { text, keeps_place })
        }
    };
    intents.extend(tell::wait(&mut state.waits, now, key, pod, why));
    intents
}
