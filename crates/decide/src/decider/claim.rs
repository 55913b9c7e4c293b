//! What a ResourceClaim says of its devices.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::key;

use crate::intent::ClaimReference;

pub(super) fn has_devices(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// Whether this controller gave it devices that nobody has reserved.
pub(super) fn is_unused(claim: &ResourceClaim) -> bool {
    is_ours(claim) && has_devices(claim) && users(claim).count() == 0
}

/// Whether this controller, or one before it, marked the claim as one that it allocates.
pub(super) fn is_ours(claim: &ResourceClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(EPOCH_ANNOTATION))
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

/// The one node of an allocation.
pub(super) fn node_of(claim: &ResourceClaim) -> Option<String> {
    let selector = claim.status.as_ref()?.allocation.as_ref()?.node_selector.as_ref()?;
    let fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let name =
        fields.filter(|field| field.key == "metadata.name").find_map(|field| field.values.as_ref()?.first());
    name.cloned()
}
