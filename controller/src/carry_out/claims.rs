//! Writes to ResourceClaims. Each names the version that it is about: another in between, by kube-scheduler or an earlier
//! leader, makes it fail.

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_decide::ClaimReference;

/// With this finalizer the resourceclaim controller frees devices before a claim goes
/// (`resourceapi.Finalizer` of k8s.io/api).
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Writes the epoch on a claim, and the finalizer where devices follow.
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
    // Of lists, a strategic patch adds to those of finalizers.
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    api(client, claim).patch(&claim.key.name, &PatchParams::default(), &patch).await
}

/// Writes an allocation. Without its time kube-scheduler could not bind the pod: it would add one, which the API server
/// refuses.
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

/// Takes an allocation back. The API server refuses that where somebody has reserved the claim.
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
