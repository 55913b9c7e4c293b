//! Pods and claims with a decision in flight: their rows in the ledger, and the devices and room counted as taken for them.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::subject::{PodObstacle, Subject, Wanted};
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fit::Takes;
use tessera_placement::statement::with_devices;

use crate::group::Member;
use crate::intent::ClaimAllocation;
use crate::ledger::{Allocation, Ledger, ManagedProposal, Progress, Proposal};
use crate::pod::reference;
use crate::world::World;

/// Grace for a verdict of kube-scheduler on a pod with devices: it may not have observed the allocation yet.
const MAY_BE_LATE: Time = Time::from_secs(5);

/// How long a pod with devices may wait under an earlier verdict of kube-scheduler.
pub(crate) const UNTIL_BOUND: Time = Time::from_secs(30);

/// Whether all claims of the pod are observed as allocated.
pub(crate) fn has_its_devices(subject: &Subject) -> bool {
    let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
    subject.obstacles.iter().all(is_gate) && subject.claims.iter().all(Wanted::is_allocated)
}

/// Records a proposal for a pod whose devices were allocated by another process, as for one of our own.
pub(crate) fn count_as_sent(world: &mut World, ledger: &mut Ledger, now: Time, member: &Member, node: &str) {
    if ledger.pods.proposal(&member.key).is_some() {
        return;
    }
    // Cannot fail: no claims are passed.
    let _ = world.cluster.assume(&member.key, &member.pod, node, Vec::new());
    world.fleet.mark(node);
    let due = now + UNTIL_BOUND;
    let managed = ManagedProposal { verdict_before: None, due, claims: Vec::new() };
    let (node, shared) = (node.to_owned(), Vec::new());
    let proposal = Proposal { node, shared, is_allocated: true, managed: Some(managed) };
    ledger.pods.propose(&reference(&member.pod), proposal);
}

/// Counts the devices as taken, regardless of the pod's outcome.
pub(crate) fn note_allocations(
    world: &mut World,
    ledger: &mut Ledger,
    pod: &Pod,
    node: &str,
    claims: &[ClaimAllocation],
    epoch: &str,
) {
    for ClaimAllocation { claim, allocation } in claims {
        let Some(known) = world.cluster.objects().claims.get(&claim.key) else { continue };
        let status = ResourceClaimStatus { allocation: Some(allocation.clone()), ..Default::default() };
        let allocated = ResourceClaim { status: Some(status), ..known.as_ref().clone() };
        // Cannot fail: the allocator wrote the quantities.
        let _ = world.cluster.assume_claim(&allocated);
        let written = Allocation {
            uid: claim.uid.clone(),
            pod: reference(pod),
            node: node.to_owned(),
            version: claim.resource_version.parse().ok(),
            epoch: epoch.to_owned(),
            progress: Progress::Sent,
            is_fencing: false,
        };
        ledger.claims.allocate(claim.key.clone(), written);
    }
}

/// Ends the assumed allocation: either observed, or no longer possible.
pub(crate) fn end_allocation(world: &mut World, ledger: &mut Ledger, claim: &Key) {
    if let Some(allocation) = ledger.claims.end_allocation(claim) {
        world.cluster.forget_claim(claim);
        world.fleet.mark(&allocation.node);
    }
}

/// Ends the claim's assumed allocation once the observed state or deletion of the claim settles its outcome.
pub(crate) fn settle_allocation(world: &mut World, ledger: &mut Ledger, key: &Key) {
    let Some(allocation) = ledger.claims.allocation(key) else { return };
    let claim = world.cluster.objects().claims.get(key);
    let is_known = claim.is_none_or(|claim| {
        let version = claim.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let is_later = match &allocation.progress {
            Progress::Acknowledged(written) => version > written.parse::<u128>().ok(),
            Progress::Sent | Progress::Uncertain => false,
        };
        let epoch = claim.metadata.annotations.as_ref().and_then(|all| all.get(EPOCH_ANNOTATION));
        claim.metadata.uid.as_deref() != Some(&allocation.uid)
            || claim.has_devices()
            || is_later
            || allocation.is_fenced_off(version, epoch)
    });
    if is_known {
        end_allocation(world, ledger, key);
    }
}

/// Whether a pod other than `but` is on its way with the claim.
pub(crate) fn is_used_on_the_way(world: &World, ledger: &Ledger, claim: &Key, but: &Key) -> bool {
    let mut others = ledger.pods.proposed_in(&claim.namespace).filter(|pod| *pod != but);
    others.any(|pod| world.cluster.objects().pods.get(pod).is_some_and(|pod| pod.names_claim(&claim.name)))
}

/// Whether an allocation or deallocation of the pod's claims is in flight.
pub(crate) fn is_being_written(ledger: &Ledger, demand: &Demand) -> bool {
    let mut claims = demand.subject.claims.iter().map(|wanted| Key::from(&wanted.claim.metadata));
    claims.any(|claim| ledger.claims.changes_devices(&claim))
}

/// Shortens the deadline of a pod with our devices once kube-scheduler newly reports no node for it.
pub(crate) fn apply_verdict(ledger: &mut Ledger, now: Time, key: &Key, pod: &Pod) {
    let Some(managed) = ledger.pods.proposal_mut(key).and_then(|proposal| proposal.managed.as_mut()) else {
        return;
    };
    if pod.is_refused() && pod.verdict() != managed.verdict_before {
        managed.due = managed.due.min(now + MAY_BE_LATE);
    }
}

/// Ends a proposal, whether carried out or abandoned.
pub(crate) fn end_proposal(world: &mut World, ledger: &mut Ledger, key: &Key) {
    if let Some(proposal) = ledger.pods.end_proposal(key) {
        world.cluster.forget(key);
        world.fleet.mark(&proposal.node);
    }
}

/// Records the pod as on its way to the node.
pub(crate) fn send(
    world: &mut World,
    ledger: &mut Ledger,
    key: &Key,
    pod: &Pod,
    demand: &Demand,
    node: &str,
    fit: Takes,
) {
    let Some(object) = world.cluster.objects().node(node) else {
        return;
    };
    let (wanted, _) = demand.on(object);
    let is_allocated = wanted.is_empty();
    // Claims written by this controller have their own ledger rows.
    let natives = wanted.into_iter().zip(fit.allocations).zip(fit.is_managed);
    let natives = natives.filter(|(_, is_managed)| !is_managed).map(|(both, _)| both);
    let (wanted, allocations): (Vec<&Wanted>, Vec<AllocationResult>) = natives.unzip();
    let claims = with_devices(&wanted, allocations);
    let shared = demand.shared().collect();
    // Cannot fail: the allocator wrote the quantities.
    let _ = world.cluster.assume(key, pod, node, claims);
    let proposal = Proposal { node: node.to_owned(), shared, is_allocated, managed: None };
    ledger.pods.propose(&reference(pod), proposal);
    world.fleet.mark(node);
}
