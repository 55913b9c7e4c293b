//! Claims holding the same device after concurrent allocations by kube-scheduler and this controller, or by two instances of either.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_allocator::overlap::overlaps;
use tessera_cluster::{ClaimExt, Holder, Key};

use crate::holders::{self, reference_of};
use crate::intent::{Intent, PodReference, Topic};
use crate::on_the_way;
use crate::pod::reference;
use crate::state::State;

/// When the claim got its devices: the older has the better right.
fn age(claim: &ResourceClaim) -> i64 {
    claim.allocated_at().map_or(i64::MIN, |since| since.as_second())
}

/// Of two claims on the same device, or exceeding a card's capacity, clears the unreserved one, else the newer. If the loser is
/// reserved, nobody can deallocate its devices, so its pods are notified.
pub(crate) fn resolve_overlaps(state: &mut State) -> Vec<Intent> {
    // During a relist, claims from before and after it coexist.
    if state.leadership.term.is_none() || state.leadership.lists.is_asked {
        return Vec::new();
    }
    let nodes = std::mem::take(&mut state.marks.to_check);
    nodes.iter().flat_map(|node| resolve_on(state, node)).collect()
}

fn resolve_on(state: &mut State, node: &str) -> Vec<Intent> {
    let mut holders = BTreeSet::new();
    for device in state.world.cluster.inventory().devices_of_node(node) {
        if device.driver_name() == state.world.driver {
            holders.extend(state.world.cluster.holders(device).filter_map(Holder::claim));
        }
    }
    let claims = holders.into_iter().filter_map(|claim| state.world.cluster.objects().claims.get(claim));
    let mut claims: Vec<&ResourceClaim> =
        claims.filter(|claim| claim.has_devices()).map(AsRef::as_ref).collect();
    if claims.len() < 2 {
        return Vec::new();
    }
    claims.sort_by_cached_key(|claim| (Reverse(claim.is_reserved()), age(claim), claim.key()));
    let found = overlaps(state.world.cluster.inventory(), &state.world.driver, &claims);
    let losers: Vec<(ResourceClaim, String)> =
        found.into_iter().map(|overlap| (claims[overlap.claim].clone(), overlap.device)).collect();
    losers.iter().flat_map(|(claim, device)| resolve(state, claim, device)).collect()
}

fn resolve(state: &mut State, claim: &ResourceClaim, device: &str) -> Vec<Intent> {
    let name = Key::from(&claim.metadata);
    let why = format!("{device} of its claim {name} is also held by another claim");
    if claim.is_reserved() {
        // Sent once, not on every change of the node.
        if !state.marks.told_overlaps.insert(claim.metadata.uid.clone().unwrap_or_default()) {
            return Vec::new();
        }
        let told = claim.users().iter().map(|user| Intent::Tell {
            pod: PodReference { key: name.with_name(&user.name), uid: user.uid.clone() },
            topic: Topic::Overlap,
            message: format!("{why}, which had it before; delete the pod, so that a new one gets another"),
        });
        return told.collect();
    }
    if !state.ledger.claims.clear(&name) {
        return Vec::new();
    }
    let pods: Vec<PodReference> = holders::pods_of(&state.world, &name).map(reference).collect();
    for pod in &pods {
        // The node is not at fault and stays eligible.
        on_the_way::end_proposal(&mut state.world, &mut state.ledger, &pod.key);
        state.waits.mark_due_if_waiting(&pod.key);
    }
    vec![Intent::Clear { pod: pods.into_iter().next(), claims: vec![reference_of(claim)], why }]
}
