//! Writes to ResourceClaims. Each write names the expected version, and fails after a concurrent write by kube-scheduler or an
//! earlier leader.

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_decide::ClaimReference;

/// Finalizer making the resourceclaim controller free the devices before a claim is deleted (`resourceapi.Finalizer` of
/// k8s.io/api).
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Writes the epoch on a claim, and the finalizer if devices follow.
pub(super) async fn mark(
    client: &Client,
    claim: &ClaimReference,
    epoch: &str,
    with_finalizer: bool,
) -> Result<ResourceClaim, kube::Error> {
    let mut metadata = precondition(claim);
    metadata["annotations"] = json!({ EPOCH_ANNOTATION: epoch });
    if with_finalizer {
        metadata["finalizers"] = json!([FINALIZER]);
    }
    // A strategic patch appends to the list of finalizers.
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    api(client, claim).patch(&claim.key.name, &PatchParams::default(), &patch).await
}

/// Writes an allocation with its timestamp. Otherwise kube-scheduler could not bind the pod: the API server rejects adding a
/// timestamp later.
pub(super) async fn allocate(
    client: &Client,
    claim: &ClaimReference,
    allocation: &AllocationResult,
) -> Result<ResourceClaim, kube::Error> {
    let mut allocation = allocation.clone();
    allocation.allocation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
    let patch = json!({ "metadata": precondition(claim), "status": { "allocation": allocation } });
    api(client, claim).patch_status(&claim.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

/// Deallocates the claim. The API server rejects this if the claim is reserved.
pub(super) async fn clear(client: &Client, claim: &ClaimReference) -> Result<ResourceClaim, kube::Error> {
    let patch = json!({ "metadata": precondition(claim), "status": { "allocation": null, "devices": null } });
    api(client, claim).patch_status(&claim.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

fn api(client: &Client, claim: &ClaimReference) -> Api<ResourceClaim> {
    Api::namespaced(client.clone(), &claim.key.namespace)
}

fn precondition(claim: &ClaimReference) -> serde_json::Value {
    json!({ "uid": claim.uid, "resourceVersion": claim.resource_version })
}
