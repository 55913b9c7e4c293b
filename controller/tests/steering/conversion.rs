//! Pods with extended resources in their limits, on managed cards.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tessera_api::conversion::{CONVERTED, MADE_FOR_LABEL, MADE_FOR_VALUE, RESOURCE_ANNOTATION};
use tessera_fakes::poll;
use tessera_harness::{Cluster, workspace};

use crate::instance::Instance;
use crate::managed::{allocation, claims};
use crate::{fleet, pods};

/// A pod as people write it.
fn pod(name: &str, cards: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": spec(cards) })
}

fn spec(cards: usize) -> Value {
    json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [
        { "name": "train", "image": "none", "resources": { "limits": { "nvidia.com/gpu": cards } } }] })
}

/// The chart's policy and classes.
async fn convert(cluster: &Cluster) {
    let chart = workspace::root().join("charts/tessera").display().to_string();
    let template = [
        "template",
        "tessera",
        &chart,
        "--kube-version=1.36.3",
        "--set",
        "extendedResourceNames.enabled=true",
        "--set",
        "managed.convertExtendedResources.enabled=true",
        "--show-only=templates/conversion-policy.yaml",
        "--show-only=templates/deviceclasses.yaml",
    ];
    cluster.apply(&cluster.helm(&template).await.unwrap()).await.unwrap();
    let label = ["label", "--overwrite", "namespace", "default", "gpu.tessera.dev/claims=enabled"];
    cluster.kubectl(&label).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    poll::until_async("the policy works", async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let pod = serde_json::from_value(pod("tried", 1)).unwrap();
        pods.create(&dry_run, &pod).await.unwrap().labels().contains_key(CONVERTED)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_served_by_managed_cards() {
    let cluster = fleet::start_with(2, 4, "Managed").await;
    convert(&cluster).await;
    let controller = Instance::start(&cluster.kubeconfig(), "only");
    cluster.create_pod(pod("train", 2)).await.unwrap();
    pods::node(&cluster, "train").await;
    let all = claims(&cluster).await.list(&ListParams::default()).await.unwrap();
    let claim = all.items.first().expect("its claim");
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    assert_eq!(devices.map(|devices| devices.results.iter().flatten().count()), Some(2), "{claim:?}");
    assert_eq!(claim.annotations()[RESOURCE_ANNOTATION], "nvidia.com/gpu: 2");
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let made = templates.get("nvidia.com-gpu-2").await.unwrap();
    assert_eq!(made.labels()[MADE_FOR_LABEL], MADE_FOR_VALUE);

    // Deleted by somebody, and named again.
    templates.delete("nvidia.com-gpu-2", &Default::default()).await.unwrap();
    cluster.create_pod(pod("again", 2)).await.unwrap();
    pods::node(&cluster, "again").await;
    controller.terminate();
    cluster.kubectl(&["label", "namespace", "default", "gpu.tessera.dev/claims-"]).await.unwrap();
}
