//! Begin of a term: fresh lists of claims, the epoch on claims without devices, and cards handed over by kube-scheduler.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_allocator::claim::Claim;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;

use crate::holders::reference_of;
use crate::intent::{ClaimReference, Intent};
use crate::leadership::{self, Leadership};
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::round::Round;
use crate::selector_costs;
use crate::state::State;
use crate::term::{Refused, TRY_AGAIN, Term};
use crate::world::World;

/// Starts a term of leadership. `epoch` differs from the epoch of every other term. Without a term, no managed
/// card is allocated.
pub(crate) fn lead(state: &mut State, now: Time, epoch: &str) {
    state.leadership.term = Some(Term::new(epoch.to_owned(), now));
    state.world.teams.forget_hours();
    state.ledger.claims.forget_clears_and_fences();
    state.ledger.evictions.forget_sent();
    state.ledger.nominations.look_again();
    state.marks.told_overlaps.clear();
    state.gangs.forget_times();
    state.marks.to_check = state.world.fleet.nodes().map(|node| node.name.clone()).collect();
    state.marks.unclaimed = state.world.cluster.objects().claims.keys().cloned().collect();
    let pods = state.world.cluster.objects().pods.keys();
    state.marks.to_note = pods.filter(|pod| state.gangs.shrunk_to(pod).is_some()).cloned().collect();
    state.waits.mark_all_due();
}

/// Ends leadership.
pub(crate) fn follow(ledger: &mut Ledger, leadership: &mut Leadership, marks: &mut Marks) {
    leadership.term = None;
    ledger.claims.forget_fences();
    marks.unclaimed.clear();
    marks.to_note.clear();
    marks.to_check.clear();
}

/// Requests the list and the fences missing before managed cards may be allocated.
pub(crate) fn prepare_term(state: &mut State, now: Time) -> Vec<Intent> {
    let Some(term) = &state.leadership.term else { return Vec::new() };
    if !state.world.fleet.has_managed() {
        return Vec::new();
    }
    let since = term.since;
    let mut intents = Vec::new();
    let is_due =
        state.world.fleet.next_handover().is_some_and(|tainted| tainted + state.leadership.handover <= now);
    let is_stale = !state.leadership.lists.are_as_of(since) || is_due;
    if is_stale && !state.leadership.lists.is_asked {
        state.leadership.lists.is_asked = true;
        intents.push(Intent::ListClaims);
    }
    if state.leadership.lists.are_as_of(since) {
        intents.extend(fence(state, now));
        intents.extend(settle(&state.world, &mut state.ledger, &mut state.leadership, now));
    }
    intents
}

/// Fences writes with an unknown outcome, so they cannot arrive later.
fn settle(world: &World, ledger: &mut Ledger, leadership: &mut Leadership, now: Time) -> Vec<Intent> {
    let Some(term) = leadership.term.as_mut().filter(|_| leadership.lists.not_before <= now) else {
        return Vec::new();
    };
    let mut intents = Vec::new();
    let open: Vec<Key> = ledger.claims.to_settle().map(|(claim, _)| claim.clone()).collect();
    for key in open {
        let Some(claim) = world.cluster.objects().claims.get(&key) else { continue };
        let is_refused = term.refused.contains_key(claim.metadata.uid.as_deref().unwrap_or_default());
        if !claim.has_devices() && !is_refused && ledger.claims.fence(&key) {
            term.settled += 1;
            let epoch = format!("{}#{}", term.epoch, term.settled);
            intents.push(Intent::Fence { claims: vec![reference_of(claim)], epoch });
        }
    }
    intents
}

/// Writes the epoch on claims without devices possibly known to an earlier leader.
fn fence(state: &mut State, now: Time) -> Vec<Intent> {
    // The list was requested in this term and includes all claims known to earlier leaders: later claims need no fence.
    if state.leadership.term.as_ref().is_none_or(|term| term.is_fenced) {
        return Vec::new();
    }
    let claims: Vec<Arc<ResourceClaim>> = state
        .world
        .cluster
        .objects()
        .claims
        .values()
        .filter(|claim| leadership::needs_fence(&state.leadership, claim))
        .cloned()
        .collect();
    let open: Vec<ClaimReference> = claims
        .iter()
        .filter(|claim| may_be_ours(&mut state.world, &mut state.leadership, &mut state.round, claim))
        .map(|claim| reference_of(claim))
        .collect();
    let Some(term) = &mut state.leadership.term else { return Vec::new() };
    if open.is_empty() {
        term.is_fenced = true;
        state.waits.mark_all_due();
        return Vec::new();
    }
    if state.leadership.lists.not_before > now {
        return Vec::new();
    }
    let epoch = term.epoch.clone();
    let fresh = open.into_iter().filter(|claim| state.ledger.claims.fence(&claim.key));
    // One intent per claim: no claim waits for the answer to another.
    fresh.map(|claim| Intent::Fence { claims: vec![claim], epoch: epoch.clone() }).collect()
}

/// Ends a fence when the claim shows the epoch, possibly before the write's answer: nothing more is awaited then.
pub(crate) fn end_fence_seen(world: &World, ledger: &mut Ledger, leadership: &Leadership, key: &Key) {
    let claim = world.cluster.objects().claims.get(key);
    let annotations = claim.and_then(|claim| claim.metadata.annotations.as_ref());
    let epoch = annotations.and_then(|all| all.get(EPOCH_ANNOTATION));
    if leadership.term.as_ref().is_some_and(|term| term.wrote(epoch)) {
        ledger.claims.end_fence(key);
    }
}

/// Whether the claim asks for any managed card.
fn may_be_ours(
    world: &mut World,
    leadership: &mut Leadership,
    round: &mut Round,
    claim: &ResourceClaim,
) -> bool {
    let form = serde_json::to_string(&claim.spec).unwrap_or_default();
    if let Some(known) = leadership.term.as_ref().and_then(|term| term.asks.get(&form)) {
        return *known;
    }
    let Ok(asked) = Claim::try_from(claim) else { return false };
    if selector_costs::unanswered_of(world, round, std::slice::from_ref(&asked)).is_some() {
        // A superfluous fence does no harm.
        return true;
    }
    let nodes: Vec<String> = world.fleet.managed_nodes().map(|node| node.name.clone()).collect();
    let asks = nodes.iter().any(|node| {
        let node = world.cluster.objects().node(node);
        let claims = std::slice::from_ref(&asked);
        node.is_some_and(|node| {
            world.cluster.has_what_is_asked(node, claims, &world.driver, &mut world.asker).unwrap_or(true)
        })
    });
    if let Some(term) = &mut leadership.term {
        term.asks.insert(form, asks);
    }
    asks
}

/// When to continue with missing lists, fences and retries.
pub(crate) fn next_of_term(world: &World, ledger: &Ledger, leadership: &Leadership) -> Option<Time> {
    let term = leadership.term.as_ref().filter(|_| world.fleet.has_managed())?;
    let handover = world.fleet.next_handover().map(|tainted| tainted + leadership.handover);
    let is_first = !leadership.lists.are_as_of(term.since);
    let list = handover.filter(|_| !is_first).or(is_first.then_some(Time::ZERO));
    let list = list.filter(|_| !leadership.lists.is_asked);
    let fence = (!is_first && !term.is_fenced && !ledger.claims.delays_fences()).then_some(Time::ZERO);
    let mut open = ledger.claims.to_settle();
    let is_uncertain = open.any(|(_, allocation)| !term.refused.contains_key(&allocation.uid));
    let settle = (!is_first && is_uncertain).then_some(Time::ZERO);
    let again = term.refused.values().map(|refused| refused.until).min();
    let write = fence.into_iter().chain(settle).min().map(|next| next.max(leadership.lists.not_before));
    list.into_iter().chain(write).chain(again).min()
}

/// Retries claims left alone for long enough.
pub(crate) fn try_refused_again(state: &mut State, now: Time) -> Vec<Intent> {
    let Some(term) = &mut state.leadership.term else { return Vec::new() };
    let ended: Vec<(String, Refused)> =
        term.refused.extract_if(.., |_, refused| refused.until <= now).collect();
    if ended.is_empty() {
        return Vec::new();
    }
    state.waits.mark_all_due();
    state.marks.unclaimed.extend(state.world.cluster.objects().claims.keys().cloned());
    let mut intents = Vec::new();
    let open = state.world.cluster.objects().claims.values().filter(|claim| !claim.has_devices());
    for claim in open {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let again = ended.iter().find(|(other, refused)| other == uid && refused.needs_fence);
        let Some((_, refused)) = again else { continue };
        let claim = reference_of(claim);
        term.refused.insert(claim.uid.clone(), Refused { until: now + TRY_AGAIN, ..refused.clone() });
        if state.ledger.claims.fence(&claim.key) {
            intents.push(Intent::Fence { claims: vec![claim], epoch: term.epoch.clone() });
        }
    }
    intents
}
