//! Ownership of a ResourceClaim's devices.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tessera_api::DeviceName;
use tessera_api::managed::{EPOCH_ANNOTATION, Nomination};
use tessera_cluster::{ClaimExt, Holder, Key, PodExt};

use crate::intent::ClaimReference;
use crate::world::World;

pub(crate) fn reference_of(claim: &ResourceClaim) -> ClaimReference {
    ClaimReference {
        key: claim.key(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        resource_version: claim.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Whether the claim has devices of managed cards, or others from this controller, not reserved by any pod.
pub(crate) fn is_unused(world: &World, claim: &ResourceClaim) -> bool {
    is_allocated_by_us(world, claim) && claim.has_devices() && !claim.is_reserved()
}

/// Whether this controller may deallocate the claim. Devices of managed cards always qualify, regardless of annotations the
/// claim's owner could write. For cards no longer managed, the epoch annotation decides.
pub(crate) fn is_allocated_by_us(world: &World, claim: &ResourceClaim) -> bool {
    let is_marked =
        || claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(EPOCH_ANNOTATION));
    has_managed_devices(world, claim) || is_marked()
}

fn has_managed_devices(world: &World, claim: &ResourceClaim) -> bool {
    let Some(node) = claim.allocated_node().and_then(|node| world.fleet.find(node)) else { return false };
    let node = world.fleet.node(node);
    // Administrative access takes no device from others.
    let takes = |result: &&DeviceRequestAllocationResult| {
        result.driver == world.driver && result.admin_access != Some(true)
    };
    let names = claim.results().iter().filter(takes).map(|result| result.device.parse::<DeviceName>());
    let mut cards = names.filter_map(|name| Some(name.ok()?.card()));
    cards.any(|card| node.is_managed(&card))
}

pub(crate) fn has_pod(world: &World, claim: &Key) -> bool {
    pods_of(world, claim).next().is_some()
}

/// The pods using the claim, now or later.
pub(crate) fn pods_of<'w>(world: &'w World, claim: &'w Key) -> impl Iterator<Item = &'w Pod> {
    let first = claim.with_name("");
    let pods = world.cluster.objects().pods.range(first..);
    let of_namespace = pods.take_while(|(pod, _)| pod.namespace == claim.namespace);
    of_namespace.map(|(_, pod)| pod.as_ref()).filter(|pod| !pod.has_ended() && pod.names_claim(&claim.name))
}

pub(crate) fn pool_of(world: &World, node: &str) -> String {
    let mut devices = world.cluster.inventory().devices_of_node(node);
    let own = devices.find(|device| device.driver_name() == world.driver);
    own.map(|device| device.pool().to_owned()).unwrap_or_default()
}

/// Claims holding any part of the nominated devices.
pub(crate) fn holders_of(world: &mut World, nomination: &Nomination) -> BTreeSet<Key> {
    let Some(index) = world.fleet.find(&nomination.node) else { return BTreeSet::new() };
    world.fleet.cards(index, &world.cluster, &world.driver);
    let Some(parts) = world.fleet.node(index).parts() else { return BTreeSet::new() };
    let devices = || world.cluster.inventory().devices_of_node(&nomination.node);
    let wanted: Vec<_> = devices()
        .zip(parts.cards())
        .filter(|(device, _)| nomination.devices.iter().any(|name| name == device.name()))
        .filter_map(|(_, part)| part)
        .collect();
    let overlaps = |part: Option<(tessera_api::PciBusId, u64)>| {
        let Some((card, slices)) = part else { return false };
        wanted.iter().any(|(other, taken)| card == *other && slices & taken != 0)
    };
    let mut holders = BTreeSet::new();
    for (device, part) in devices().zip(parts.cards()) {
        if overlaps(part) {
            holders.extend(world.cluster.holders(device).filter_map(Holder::claim).cloned());
        }
    }
    holders
}

/// The pods the claim is reserved for. Before the first reservation, the pod the claim was created for.
pub(crate) fn pods_holding(key: &Key, claim: &ResourceClaim) -> Vec<Key> {
    let reserved = claim.users().iter().map(|user| key.with_name(&user.name));
    let owner = claim.owning_pod().filter(|_| !claim.is_reserved()).map(|pod| key.with_name(pod));
    reserved.chain(owner).collect()
}

/// The pods using a claim allocated by this controller.
pub(crate) fn users_of(world: &World, claim: &Key) -> Vec<Key> {
    let found = world.cluster.objects().claims.get(claim).filter(|found| is_allocated_by_us(world, found));
    found.into_iter().flat_map(|found| pods_holding(claim, found)).collect()
}

/// Whether the claim was created for the pod.
pub(crate) fn is_claim_of(world: &World, claim: &Key, pod: &Key) -> bool {
    let found = world.cluster.objects().claims.get(claim);
    found.and_then(|found| found.owning_pod()) == Some(pod.name.as_str()) && claim.namespace == pod.namespace
}

/// All pods holding devices of managed cards, each with its claims.
pub(crate) fn holding_pods(world: &World) -> Vec<(Key, Vec<Key>)> {
    let mut pods: std::collections::BTreeMap<Key, Vec<Key>> = std::collections::BTreeMap::new();
    for (name, claim) in &world.cluster.objects().claims {
        if !claim.has_devices() || !is_allocated_by_us(world, claim) {
            continue;
        }
        for pod in pods_holding(name, claim) {
            pods.entry(pod).or_default().push(Key::from(&claim.metadata));
        }
    }
    pods.into_iter().collect()
}
