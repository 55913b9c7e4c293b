//! Pods with extended resources in their limits, on managed cards.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tessera_api::conversion::{CONVERTED, MADE_FOR_LABEL, MADE_FOR_VALUE, RESOURCE_ANNOTATION};
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_fakes::poll;
use tessera_harness::{Cluster, workspace};

use crate::instance::Instance;
use crate::managed::{allocation, claims};
use crate::steered::told;
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

/// The chart's policies and classes.
pub async fn convert(cluster: &Cluster) {
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
        "--show-only=templates/steering-policy.yaml",
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
    let given = told(&cluster, "train", "Allocated").await;
    assert!(given.ends_with("; for nvidia.com/gpu: 2"), "{given}");
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
}

/// A gang by the label in its Job's template, without a claim anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_of_converted_pods_waits_whole_and_runs_whole() {
    let cluster = fleet::start_with(2, 4, "Managed").await;
    convert(&cluster).await;
    let controller = Instance::start(&cluster.kubeconfig(), "only");
    cluster.create_pod(pod("in-the-way", 1)).await.unwrap();
    pods::node(&cluster, "in-the-way").await;
    let labels = json!({ "app": "train", "gpu.tessera.dev/gang": "enabled" });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "train", "namespace": "default" },
        "spec": { "completionMode": "Indexed", "parallelism": 2, "completions": 2,
            "template": { "metadata": { "labels": labels }, "spec": spec(4) } },
    });
    fleet::apply(&cluster, &[job]).await;
    let all = async || pods::of_app(&cluster, "train").await;
    poll::until_async("all of its pods exist", async || all().await.len() == 2).await;
    let first = all().await.iter().map(ResourceExt::name_any).min().unwrap();
    let why = "asks for nvidia.com/gpu: 4; gang train: 1 of 2 pods that it needs fit now";
    // After half a minute where the pods were seen before their Job.
    poll::until_async(why, async || told(&cluster, &first, "NotAllocated").await.contains(why)).await;
    assert!(all().await.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.is_none()));
    cluster.delete_pod("default", "in-the-way").await.unwrap();
    pods::nodes_of_app(&cluster, "train", 2).await;
    for pod in all().await {
        assert_eq!(pod.annotations()[FORMED_ANNOTATION], "2", "the number of pods that started together");
    }
    controller.terminate();
}

/// Each pod is told of its own template, and gets devices when templates are admitted.
#[tokio::test(flavor = "multi_thread")]
async fn all_refused_templates_are_told() {
    let cluster = fleet::start_with(1, 4, "Managed").await;
    convert(&cluster).await;
    let quota = ["create", "quota", "none", "--hard=count/resourceclaimtemplates.resource.k8s.io=0"];
    cluster.kubectl(&quota).await.unwrap();
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let mut another = templates.get("gpus-1").await.unwrap();
    another.metadata = ObjectMeta { name: Some("another".to_owned()), ..ObjectMeta::default() };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    poll::until_async("no template is admitted", async || {
        templates.create(&dry_run, &another).await.is_err()
    })
    .await;
    for (name, cards) in [("one", 1), ("two", 2)] {
        cluster.create_pod(pod(name, cards)).await.unwrap();
    }
    // Both wait when the controller looks first.
    let controller = Instance::start(&cluster.kubeconfig(), "only");
    for (name, limits) in [("one", "nvidia.com/gpu: 1"), ("two", "nvidia.com/gpu: 2")] {
        let why = told(&cluster, name, "TemplateRefused").await;
        assert!(why.contains(&format!("for {limits}: ")) && why.contains("exceeded quota"), "{why}");
    }
    cluster.kubectl(&["delete", "quota", "none"]).await.unwrap();
    pods::node(&cluster, "one").await;
    pods::node(&cluster, "two").await;
    controller.terminate();
}
