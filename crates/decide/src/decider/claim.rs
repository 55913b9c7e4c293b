//! Ownership of a ResourceClaim's devices.

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tessera_api::DeviceName;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::ClaimExt;

use super::Decider;
use crate::intent::ClaimReference;

impl Decider {
    /// Whether the claim has devices of managed cards, or others from this controller, not reserved by any pod.
    pub(super) fn is_unused(&self, claim: &ResourceClaim) -> bool {
        self.is_allocated_by_us(claim) && claim.has_devices() && !claim.is_reserved()
    }

    /// Whether this controller may deallocate the claim. Devices of managed cards always qualify, regardless of annotations the
    /// claim's owner could write. For cards no longer managed, the epoch annotation decides.
    pub(super) fn is_allocated_by_us(&self, claim: &ResourceClaim) -> bool {
        let is_marked =
            || claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(EPOCH_ANNOTATION));
        self.has_managed_devices(claim) || is_marked()
    }

    fn has_managed_devices(&self, claim: &ResourceClaim) -> bool {
        let Some(node) = claim.allocated_node().and_then(|node| self.fleet.find(node)) else { return false };
        let node = self.fleet.node(node);
        // Administrative access takes no device from others.
        let takes = |result: &&DeviceRequestAllocationResult| {
            result.driver == self.driver && result.admin_access != Some(true)
        };
        let names = claim.results().iter().filter(takes).map(|result| result.device.parse::<DeviceName>());
        let mut cards = names.filter_map(|name| Some(name.ok()?.card()));
        cards.any(|card| node.is_managed(&card))
    }
}

pub(super) fn reference_of(claim: &ResourceClaim) -> ClaimReference {
    ClaimReference {
        key: claim.key(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        resource_version: claim.metadata.resource_version.clone().unwrap_or_default(),
    }
}
