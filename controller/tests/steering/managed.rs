//! Managed pools: the controller allocates, kube-scheduler binds.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::managed::{EPOCH_ANNOTATION, REFUSED_NODES_ANNOTATION};
use tessera_fakes::poll;
use tessera_harness::Cluster;

use crate::instance::Instance;
use crate::steered::told;
use crate::{fleet, pods};

/// A pod that did not opt in to steering.
pub fn ungated(name: &str, cards: usize) -> Value {
    let mut pod = pods::pod(name, cards);
    pod["spec"]["schedulingGates"] = json!([]);
    pod
}

pub async fn claims(cluster: &Cluster) -> Api<ResourceClaim> {
    Api::namespaced(cluster.client().await.unwrap(), "default")
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Every device that is allocated, as `pool/device`; none of them twice.
async fn devices(cluster: &Cluster) -> BTreeSet<String> {
    let all = claims(cluster).await.list(&ListParams::default()).await.unwrap();
    let allocations = all.items.iter().filter_map(allocation);
    let results = allocations
        .flat_map(|allocation| allocation.devices.iter().flat_map(|all| all.results.iter().flatten()));
    let mut devices = BTreeSet::new();
    for result in results {
        let device = format!("{}/{}", result.pool, result.device);
        assert!(devices.insert(device.clone()), "{device} has two owners");
    }
    devices
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_allocated_by_the_controller_and_bound_by_kube_scheduler() {
    let cluster = fleet::start_with(4, 4, "Managed").await;

    // Without the controller nobody allocates managed cards.
    cluster.create_pod(ungated("open", 1)).await.unwrap();
    poll::until_async("kube-scheduler has looked at it", async || {
        let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
        let pod = pods.get("open").await.unwrap();
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
    })
    .await;
    let first = Instance::start(&cluster.kubeconfig(), "first");
    let node = pods::node(&cluster, "open").await;
    let all = claims(&cluster).await.list(&ListParams::default()).await.unwrap();
    let claim = all.items.first().expect("its claim");
    assert!(claim.annotations().contains_key(EPOCH_ANNOTATION), "{:?}", claim.annotations());
    assert!(claim.finalizers().iter().any(|finalizer| finalizer.ends_with("/delete-protection")));
    assert!(allocation(claim).is_some_and(|allocation| allocation.allocation_timestamp.is_some()));

    // With the gate, on the same node: it is the fullest.
    assert_eq!(pods::run(&cluster, "gated", 1).await, node);
    assert!(told(&cluster, "gated", "Allocated").await.contains("gpu-"));

    // What the controller does not foresee: kube-scheduler gives the devices back, and the pod goes elsewhere.
    let mut apart = ungated("apart", 1);
    apart["spec"]["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchExpressions": [
            { "key": "app", "operator": "DoesNotExist" }] } }] } });
    cluster.create_pod(apart).await.unwrap();
    assert_ne!(pods::node(&cluster, "apart").await, node);
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let refused = pods.get("apart").await.unwrap();
    let noted = refused.annotations().get(REFUSED_NODES_ANNOTATION);
    assert!(noted.is_some_and(|noted| noted.contains(&node)), "{noted:?}");

    // A claim that somebody named gives its devices back when the last pod that could use it is gone.
    let named = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": "named", "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "gpus", "exactly": { "deviceClassName": "gpu" } }] } },
    });
    fleet::apply(&cluster, &[named]).await;
    let mut user = ungated("user", 1);
    user["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "named" }]);
    // It fits on no node, so kube-scheduler never reserves the claim.
    user["spec"]["nodeSelector"] = json!({ "no": "such-node" });
    cluster.create_pod(user.clone()).await.unwrap();
    told(&cluster, "user", "NotSteered").await;
    cluster.delete_pod("default", "user").await.unwrap();
    user["spec"]["nodeSelector"] = json!({});
    user["metadata"]["name"] = json!("second-user");
    cluster.create_pod(user).await.unwrap();
    pods::node(&cluster, "second-user").await;
    cluster.delete_pod("default", "second-user").await.unwrap();
    let claims = claims(&cluster).await;
    poll::until_async("its devices are free", async || {
        allocation(&claims.get("named").await.unwrap()).is_none()
    })
    .await;
    first.terminate();
}

/// Killed in a burst; its successor does the rest, and no card has two owners.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_leaves_nothing_half_done() {
    let cluster = fleet::start_with(8, 4, "Managed").await;
    let first = Instance::start(&cluster.kubeconfig(), "first");
    pods::run(&cluster, "before", 1).await;
    let mut spec = pods::spec(1);
    spec["schedulingGates"] = json!([]);
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "burst", "namespace": "default" },
        "spec": { "parallelism": 31, "completions": 31,
            "template": { "metadata": { "labels": { "app": "burst" } }, "spec": spec } },
    });
    fleet::apply(&cluster, &[job]).await;
    poll::until_async("some are allocated", async || devices(&cluster).await.len() >= 4).await;
    first.kill();
    let second = Instance::start(&cluster.kubeconfig(), "second");
    pods::nodes_of_app(&cluster, "burst", 31).await;
    assert_eq!(devices(&cluster).await.len(), 32);
    cluster.create_pod(ungated("none-left", 1)).await.unwrap();
    told(&cluster, "none-left", "NotSteered").await;
    second.terminate();
}
