//! Observed claims: in-flight allocations that arrive, are taken back, or change the devices left for others.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::DeviceName;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use crate::guesses::Guesses;
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::on_the_way::{self, UNTIL_BOUND, has_its_devices};
use crate::pod::reference;
use crate::state::State;
use crate::waits::Waits;
use crate::world::World;
use crate::{commit, learn};

/// Ends the proposal if all writes were answered and some allocations are gone: kube-scheduler tried the pod while only part of its
/// claims had devices, and deallocated them. The node is not to blame, and nobody else allocates them again.
pub(crate) fn end_if_partly_taken(
    world: &mut World,
    ledger: &mut Ledger,
    waits: &mut Waits,
    key: &Key,
    pod: &Pod,
) {
    let managed = ledger.pods.proposal(key).and_then(|proposal| proposal.managed.as_ref());
    let Some(managed) = managed.filter(|_| !ledger.pods.is_writing(&reference(pod))) else { return };
    let mut open = managed.claims.iter().filter(|claim| {
        let claim = world.cluster.objects().claims.get(*claim);
        claim.is_some_and(|claim| !claim.has_devices())
    });
    let is_open = open.next().is_some();
    if is_open && managed.claims.iter().all(|claim| ledger.claims.allocation(claim).is_none()) {
        on_the_way::end_proposal(world, ledger, key);
        waits.mark_due(key);
    }
}

/// Marks the nodes of the claim's devices.
pub(crate) fn mark_claim(world: &mut World, marks: &mut Marks, guesses: &mut Guesses, key: &Key) {
    let Some(claim) = world.cluster.objects().claims.get(key) else { return };
    let mut nodes = BTreeSet::new();
    for result in claim.results() {
        for device in world.cluster.inventory().find(&result.driver, &result.pool, &result.device) {
            nodes.extend(device.node_name().map(str::to_owned));
        }
    }
    for node in nodes {
        world.fleet.mark(&node);
        marks.to_check.insert(node.clone());
        guesses.reallocated.insert(node);
    }
}

/// Records the release of the claim's partitions, if any.
pub(crate) fn count_departures(world: &mut World, key: &Key) {
    let Some(held) = world.cluster.objects().claims.get(key) else {
        return;
    };
    let names = held.results().iter().map(|result| result.device.parse::<DeviceName>());
    let partitions = names.filter(|name| matches!(name, Ok(DeviceName::Partition(_)))).count();
    (0..partitions).for_each(|_| world.mix.departed());
}

/// A claim changed: re-examines pods using it, one of which may have completed its allocation.
pub(crate) fn advance_users(state: &mut State, now: Time, claim: &Key) {
    let owner = state.world.cluster.objects().claims.get(claim);
    let owner = owner.and_then(|claim| claim.owning_pod()).map(str::to_owned);
    match owner {
        Some(pod) => advance_user(state, now, &claim.with_name(pod)),
        None => {
            let on_their_way = state.ledger.pods.proposed_in(&claim.namespace);
            let pods: Vec<Key> = state
                .waits
                .pods()
                .filter(|pod| pod.namespace == claim.namespace)
                .chain(on_their_way)
                .cloned()
                .collect();
            pods.iter().for_each(|pod| advance_user(state, now, pod));
        }
    }
}

pub(crate) fn advance_user(state: &mut State, now: Time, pod: &Key) {
    learn::add_arrival_with_claims(&mut state.world, &mut state.learned, pod);
    state.waits.mark_due_if_waiting(pod);
    let Some(proposal) = state.ledger.pods.proposal(pod) else { return };
    let (node, was_allocated, is_managed) =
        (proposal.node.clone(), proposal.is_allocated, proposal.managed.is_some());
    let Some(object) = state.world.cluster.objects().pods.get(pod).cloned() else { return };
    let subject = tessera_cluster::subject::of_pod(state.world.cluster.objects(), &object);
    let is_allocated = has_its_devices(&subject);
    if was_allocated && is_managed && !is_allocated && object.node_name().is_none() {
        // kube-scheduler deallocated them: the node does not suit it.
        commit::refused(state, now, pod, &object);
    }
    if !was_allocated && is_managed && !is_allocated {
        end_if_partly_taken(&mut state.world, &mut state.ledger, &mut state.waits, pod, &object);
    }
    if was_allocated || !is_allocated {
        return;
    }
    if object.node_name().is_some() {
        on_the_way::end_proposal(&mut state.world, &mut state.ledger, pod);
    } else {
        state.world.cluster.forget_claims(pod);
        state.world.fleet.mark(&node);
        if let Some(proposal) = state.ledger.pods.proposal_mut(pod) {
            proposal.is_allocated = true;
            if let Some(managed) = &mut proposal.managed {
                managed.due = now + UNTIL_BOUND;
            }
        }
    }
}
