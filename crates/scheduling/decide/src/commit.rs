//! Decisions as writes.
//!
//! **Guarantees**
//! 1. Devices are written before any gate is removed, and the gates of a gang only once enough of its pods have devices.
//! 2. Nothing is written for a pod or a claim with a write in flight.
//! 3. Nothing is allocated before this term's fence is complete ([`crate::fencing`]).
//!
//! **Waves**, each after the answers to the one before:
//!
//! ```text
//! gated pods allocated -> pods without a gate allocated -> node nominated and gate removed
//! pods nominated (annotation) -> victims evicted          (preempt.rs)
//! ```

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt, gang};
use tessera_placement::Time;
use tessera_placement::demand::Demand;

use crate::group::{Group, GroupId, Member, Placement, SeatState};
use crate::holders::{self, reference_of};
use crate::intent::{ClaimAllocation, ClaimReference, Intent};
use crate::ledger::ManagedProposal;
use crate::on_the_way::{self, UNTIL_BOUND};
use crate::pod::{limits_as_written, reference};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::{leadership, nodes, paused, refusals, tell};

/// Writes the allocations of a plan. A gang's gates stay, and pods without a gate come last, because kube-scheduler binds them as soon as
/// they have devices. The gate of a pod alone is removed in the same step.
pub(crate) fn write(
    state: &mut State,
    now: Time,
    group: &Group,
    placements: Vec<Placement<'_>>,
) -> Vec<Intent> {
    let any_gated = placements.iter().any(|placed| placed.member.pod.is_gated());
    let of_this_wave = placements.into_iter().filter(|placed| !any_gated || placed.member.pod.is_gated());
    of_this_wave.filter_map(|placed| allocate(state, now, group, placed)).collect()
}

/// Proposes the node to kube-scheduler, which allocates the pod's devices.
pub(crate) fn steer(state: &mut State, member: &Member, node: &str, why: &str) -> Option<Intent> {
    let demand = member.demand.as_ref().filter(|_| member.pod.is_gated())?;
    let fit = nodes::fit_by_scheduler(&mut state.world, demand, node)?;
    on_the_way::send(&mut state.world, &mut state.ledger, &member.key, &member.pod, demand, node, fit);
    Some(Intent::Steer { pod: reference(&member.pod), node: node.to_owned(), why: why.to_owned() })
}

/// Removes the gate of every pod with all its devices.
pub(crate) fn lift(state: &mut State, now: Time, group: &Group) -> Vec<Intent> {
    let epoch = state.leadership.term.as_ref().map(|term| term.epoch.clone());
    // A pod whose gate was removed without devices has no proposal, and is not there yet.
    let has_devices = |member: &&Member| match member.state {
        SeatState::Open | SeatState::Astray | SeatState::Unfit => false,
        SeatState::Lifted => member.demand.is_some() || state.ledger.pods.proposal(&member.key).is_some(),
        SeatState::Allocated(_) | SeatState::Bound | SeatState::Done => true,
    };
    let formed = group.done + group.members.iter().filter(has_devices).count();
    let formed = group.id.gang().map(|_| formed);
    let mut intents = Vec::new();
    for member in group.allocated() {
        let SeatState::Allocated(node) = &member.state else { continue };
        let why = match &group.id {
            GroupId::Gang(gang) => format!("all of its gang {} have their devices", gang.name),
            GroupId::Pod(_) if node.is_none() => "no claim of the pod needs devices".to_owned(),
            GroupId::Pod(_) => "its claims have devices".to_owned(),
        };
        let Some(node) = node else {
            intents.push(tell::release(state, &member.key, &member.pod, why));
            continue;
        };
        let Some(epoch) = epoch.clone() else { continue };
        on_the_way::count_as_sent(&mut state.world, &mut state.ledger, now, member, node);
        // Released until the pod is observed without its gate.
        state.ledger.pods.release(&reference(&member.pod));
        let (pod, node) = (reference(&member.pod), node.clone());
        intents.push(Intent::Allocate {
            pod,
            node,
            claims: Vec::new(),
            epoch,
            lifts_gate: true,
            formed,
            why,
        });
    }
    if !intents.is_empty() && !group.is_alone() {
        intents.extend(lift_without_devices(state, group));
    }
    intents
}

/// Lifts the gates of pods that have no devices yet, where one gate would hold back the whole group.
fn lift_without_devices(state: &mut State, group: &Group) -> Vec<Intent> {
    let open = group.in_state(&SeatState::Open);
    let open = open.filter(|member| member.pod.is_gated() && gang::is_ungated_together(&member.pod));
    open.map(|member| {
        let why = format!("one gate would hold back all pods of its PodGroup {}", group.name());
        tell::release(state, &member.key, &member.pod, why)
    })
    .collect()
}

/// Takes back the devices of pods that do not run yet. Where some of the gang run or are on their way, only those of pods added to a gang
/// that is whole without them.
pub(crate) fn hold_nothing(state: &mut State, group: &Group, why: &str) -> Vec<Intent> {
    let is_whole = group.formed > 0 && group.bound_or_done() >= group.least();
    if group.members.iter().any(Member::holds) && !is_whole {
        return Vec::new();
    }
    let held = |member: &&Member| {
        matches!(member.state, SeatState::Allocated(_) | SeatState::Astray | SeatState::Unfit)
    };
    group.members.iter().filter(held).filter_map(|member| take_back_of(state, member, why)).collect()
}

/// Takes back the devices of one member.
pub(crate) fn take_back_of(state: &mut State, member: &Member, why: &str) -> Option<Intent> {
    on_the_way::end_proposal(&mut state.world, &mut state.ledger, &member.key);
    let demand = member.demand.as_ref()?;
    take_back(state, &member.key, &member.pod, demand, why)
}

/// Takes back the devices of pods only some of whose claims have any.
pub(crate) fn take_back_parts(state: &mut State, open: &[&Member], why: &str) -> Vec<Intent> {
    let demands = open.iter().filter_map(|member| Some((member, member.demand.as_ref()?)));
    let taken =
        demands.filter_map(|(member, demand)| take_back(state, &member.key, &member.pod, demand, why));
    taken.collect()
}

/// Allocates the planned devices to the pod's claims. The gate of a pod alone is removed afterwards, in the same intent.
fn allocate(state: &mut State, now: Time, group: &Group, placed: Placement<'_>) -> Option<Intent> {
    let Placement { member, node, fit, why } = placed;
    let Member { key, pod, demand, .. } = member;
    let demand = demand.as_ref()?;
    let term = state.leadership.term.as_ref().filter(|_| leadership::may_allocate(&state.leadership))?;
    let epoch = term.epoch.clone();
    let object = state.world.cluster.objects().node(&node)?;
    let (wanted, _) = demand.on(object);
    let ours =
        wanted.iter().zip(&fit.allocations).zip(&fit.is_managed).filter(|(_, is_managed)| **is_managed);
    let claims = ours.map(|((wanted, allocation), _)| ClaimAllocation {
        claim: reference_of(&wanted.claim),
        allocation: allocation.clone(),
    });
    let claims: Vec<ClaimAllocation> = claims.collect();
    let may_allocate = state.ledger.claims.may_allocate(claims.iter().map(|claim| &claim.claim.key));
    debug_assert_eq!(may_allocate, Ok(()), "{key}");
    if let Err(error) = may_allocate {
        return tell::wait(&mut state.waits, now, key, pod, WaitReason::Unfit(error.to_string()));
    }
    on_the_way::send(&mut state.world, &mut state.ledger, key, pod, demand, &node, fit);
    on_the_way::note_allocations(&mut state.world, &mut state.ledger, pod, &node, &claims, &epoch);
    let keys = claims.iter().map(|claim| claim.claim.key.clone()).collect();
    let managed = ManagedProposal { verdict_before: pod.verdict(), due: now + UNTIL_BOUND, claims: keys };
    if let Some(proposal) = state.ledger.pods.proposal_mut(key) {
        proposal.managed = Some(managed);
    }
    let lifts_gate = group.is_alone() && pod.is_gated();
    let why = match limits_as_written(pod) {
        Some(limits) => format!("{why}; for {limits}"),
        None => why,
    };
    Some(Intent::Allocate { pod: reference(pod), node, claims, epoch, lifts_gate, formed: None, why })
}

/// Takes back our unreserved devices from the pod, except claims in use by another pod on its way.
pub(crate) fn take_back(
    state: &mut State,
    key: &Key,
    pod: &Pod,
    demand: &Demand,
    why: &str,
) -> Option<Intent> {
    state.leadership.term.as_ref()?;
    let ours = demand.subject.claims.iter().map(|wanted| &wanted.claim);
    let ours = ours.filter(|claim| {
        holders::is_unused(&state.world, claim) && leadership::refusal_of(&state.leadership, claim).is_none()
    });
    let claims: Vec<ClaimReference> = ours.map(reference_of).collect();
    let claims: Vec<ClaimReference> = claims
        .into_iter()
        .filter(|claim| {
            !on_the_way::is_used_on_the_way(&state.world, &state.ledger, &claim.key, key)
                && state.ledger.claims.clear(&claim.key)
        })
        .collect();
    if claims.is_empty() {
        return None;
    }
    state.waits.set_reason(key, WaitReason::Passing(why.to_owned()));
    Some(Intent::Clear { pod: Some(reference(pod)), claims, why: why.to_owned() })
}

/// kube-scheduler refused the node of a pod with our devices.
pub(crate) fn refused(state: &mut State, now: Time, key: &Key, pod: &Pod) {
    let Some(node) = state.ledger.pods.proposal(key).map(|proposal| proposal.node.clone()) else { return };
    state.refusals.add(refusals::owner(pod), &node, now);
    paused::pause_unbound(&mut state.refusals, now, pod);
    on_the_way::end_proposal(&mut state.world, &mut state.ledger, key);
    state.marks.to_note.insert(key.clone());
    state.waits.mark_due(key);
}
