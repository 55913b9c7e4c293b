//! Outcomes of writes.

use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;

use crate::healing::Healing;
use crate::intent::{ClaimReference, PodReference};
use crate::leadership::Leadership;
use crate::ledger::{Allocation, Ledger, Progress};
use crate::observe::claims;
use crate::on_the_way;
use crate::state::State;
use crate::term::{Refused, TRY_AGAIN};
use crate::world::World;

/// Pause after a failed write to claims.
const PAUSE: Time = Time::from_secs(2);

/// Handles the outcome of an eviction.
pub(crate) fn evicted(
    ledger: &mut Ledger,
    healing: &mut Healing,
    now: Time,
    pod: &PodReference,
    is_done: bool,
) {
    if !is_done {
        ledger.evictions.refuse(pod, now);
    } else if let Some(count) = ledger.evictions.done(pod) {
        healing.count(count, now);
    }
}

pub(crate) fn claims_listed(world: &mut World, leadership: &mut Leadership, asked_at: Time) {
    leadership.lists.is_asked = false;
    leadership.lists.fresh = leadership.lists.fresh.max(Some(asked_at));
    world.handed_over = leadership.lists.fresh.and_then(|fresh| fresh.checked_sub(leadership.handover));
    if let Some(then) = asked_at.checked_sub(leadership.handover) {
        world.fleet.hand_over(then);
    }
}

pub(crate) fn claims_written(state: &mut State, now: Time, claims: &[Key], is_done: bool) {
    for claim in claims {
        let uid =
            state.world.cluster.objects().claims.get(claim).and_then(|claim| claim.metadata.uid.clone());
        let was_fencing = state.ledger.claims.end_fence(claim);
        if was_fencing {
            // The claim may have got devices meanwhile, and the fence in flight blocked their deallocation.
            state.marks.unclaimed.insert(claim.clone());
            claims::mark_claim(&mut state.world, &mut state.marks, &mut state.guesses, claim);
        }
        if let Some(term) = &mut state.leadership.term
            && was_fencing
            && is_done
        {
            let was_refused = uid.as_ref().and_then(|uid| term.refused.remove(uid)).is_some();
            term.fenced.extend(uid);
            if was_refused {
                claims::advance_users(state, now, claim);
            }
            if state.ledger.claims.is_uncertain(claim) {
                on_the_way::end_allocation(&mut state.world, &mut state.ledger, claim);
                claims::advance_users(state, now, claim);
            }
        }
        if state.ledger.claims.end_clear(claim) {
            state.marks.unclaimed.insert(claim.clone());
            claims::advance_users(state, now, claim);
        }
    }
    if !is_done {
        state.leadership.lists.not_before = now + PAUSE;
    }
}

/// Outcome of the writes of an intent for the pod.
pub(crate) fn carried(
    state: &mut State,
    now: Time,
    pod: &PodReference,
    is_done: bool,
    versions: &[(Key, String)],
) {
    state.ledger.pods.answer(pod);
    state.ledger.claims.acknowledge(pod, versions);
    state.waits.mark_due_if_waiting(&pod.key);
    // The write may already have been observed, and even its reversal.
    let claims = state.ledger.claims.of_pod(pod);
    claims.iter().for_each(|claim| on_the_way::settle_allocation(&mut state.world, &mut state.ledger, claim));
    if is_done {
        state.refusals.written(pod, true, now);
        claims::advance_user(state, now, &pod.key);
    }
    let found = state.world.cluster.objects().pods.get(&pod.key);
    let is_same = found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&pod.uid));
    // A pod observed without its gate is on its way, even if the answer to the write was lost.
    if is_done || !is_same || !state.waits.contains(&pod.key) {
        return;
    }
    on_the_way::end_proposal(&mut state.world, &mut state.ledger, &pod.key);
    state.ledger.pods.end_release(&pod.key);
    let again = state.refusals.written(pod, false, now);
    state.waits.set_pause(&pod.key, again);
}

/// The API server refused to change the claim; `pod`: the pod to receive its devices.
pub(crate) fn claim_refused(
    state: &mut State,
    now: Time,
    claim: &ClaimReference,
    pod: Option<&PodReference>,
    why: String,
) {
    let is_it = |allocation: &Allocation| {
        allocation.uid == claim.uid && Some(&allocation.pod) == pod && allocation.progress == Progress::Sent
    };
    if state.ledger.claims.allocation(&claim.key).is_some_and(is_it) {
        // A refused write cannot arrive later, and no other is in flight for the claim.
        on_the_way::end_allocation(&mut state.world, &mut state.ledger, &claim.key);
    }
    if pod.is_none() {
        state.ledger.claims.end_fence(&claim.key);
        if state.ledger.claims.end_clear(&claim.key) {
            state.marks.unclaimed.insert(claim.key.clone());
        }
    }
    let open = state.world.cluster.objects().claims.get(&claim.key).filter(|claim| !claim.has_devices());
    let epoch = open.and_then(|claim| claim.metadata.annotations.as_ref()?.get(EPOCH_ANNOTATION)).cloned();
    let Some(term) = &mut state.leadership.term else { return };
    let needs_fence = epoch.is_some() && !term.wrote(epoch.as_ref());
    let (version, until) = (claim.resource_version.clone(), now + TRY_AGAIN);
    term.refused.insert(claim.uid.clone(), Refused { why, version, until, needs_fence });
    claims::advance_users(state, now, &claim.key);
}
