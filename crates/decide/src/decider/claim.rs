//! What a ResourceClaim says of its devices.

use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, ResourceClaim, ResourceClaimConsumerReference,
};
use tessera_api::DeviceName;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{key, outcome};

use super::Decider;
use crate::intent::ClaimReference;

pub(super) fn has_devices(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

impl Decider {
    /// Whether the claim has devices of managed cards, or others from this controller, that nobody has reserved.
    pub(super) fn is_unused(&self, claim: &ResourceClaim) -> bool {
        self.is_allocated_by_us(claim) && has_devices(claim) && users(claim).count() == 0
    }

    /// Whether the claim's devices are this controller's to take back: those of managed cards are, whatever stands on the claim,
    /// which its owner may write; of cards that are managed no longer, the mark says it.
    pub(super) fn is_allocated_by_us(&self, claim: &ResourceClaim) -> bool {
        let is_marked =
            || claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(EPOCH_ANNOTATION));
        self.has_managed_devices(claim) || is_marked()
    }

    fn has_managed_devices(&self, claim: &ResourceClaim) -> bool {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let Some(node) = allocation.and_then(|_| self.fleet.find(&node_of(claim)?)) else { return false };
        let node = self.fleet.node(node);
        let results = allocation.into_iter().flat_map(outcome::results);
        // Who administers a device takes it from nobody.
        let takes = |result: &&DeviceRequestAllocationResult| {
            result.driver == self.driver && result.admin_access != Some(true)
        };
        let names = results.filter(takes).map(|result| result.device.parse::<DeviceName>());
        let mut cards = names.filter_map(|name| Some(name.ok()?.card()));
        cards.any(|card| node.is_managed(&card))
    }
}

/// The pods that have reserved it.
pub(super) fn users(claim: &ResourceClaim) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten())
}

pub(super) fn reference_of(claim: &ResourceClaim) -> ClaimReference {
    ClaimReference {
        key: key(&claim.metadata),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        resource_version: claim.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Name of the pod that it was made for.
pub(super) fn owning_pod(claim: &ResourceClaim) -> Option<&str> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Pod").map(|owner| owner.name.as_str())
}

/// The one node of an allocation.
pub(super) fn node_of(claim: &ResourceClaim) -> Option<String> {
    let selector = claim.status.as_ref()?.allocation.as_ref()?.node_selector.as_ref()?;
    let fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let name =
        fields.filter(|field| field.key == "metadata.name").find_map(|field| field.values.as_ref()?.first());
    name.cloned()
}
