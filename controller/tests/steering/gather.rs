//! Pods that move for one that has waited.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::jiff::{Span, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::{MOVABLE, MOVABLE_LABEL};
use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
use tessera_fakes::poll;
use tessera_harness::Cluster;
use tokio::net::TcpListener;

use crate::instance::Instance;
use crate::managed::ungated;
use crate::steered::told;
use crate::{fleet, pods};

/// Both nodes' cards are of a pool with this mode of gathering.
async fn gather(cluster: &Cluster, mode: &str) {
    let gather = json!({ "mode": mode, "minRuntimeSeconds": 60 });
    let placement = json!({ "reserveAfterSeconds": 0, "gather": gather });
    for node in 0..2 {
        fleet::report(cluster, node, "placement", &placement).await;
    }
}

async fn of_namespace(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client().await.unwrap(), "default")
}

/// A Deployment of one movable pod with one card, which has run for an hour. Returns the pod's name and node.
async fn movable(cluster: &Cluster, name: &str) -> (String, String) {
    let mut deployment = pods::deployment(name, 1, 1);
    deployment["spec"]["template"]["metadata"]["labels"][MOVABLE_LABEL] = json!(MOVABLE);
    fleet::apply(cluster, &[deployment]).await;
    let node = pods::nodes_of_app(cluster, name, 1).await.remove(0);
    let pod = pods::of_app(cluster, name).await[0].name_any();
    let began = Timestamp::now() - Span::new().hours(1);
    let status = Patch::Merge(json!({ "status": { "phase": "Running", "startTime": began } }));
    of_namespace(cluster).await.patch_status(&pod, &PatchParams::default(), &status).await.unwrap();
    (pod, node)
}

/// The pods of the app may not be evicted.
fn budget(app: &str) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": app, "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } } })
}

/// Evictions hang at a webhook without answers.
async fn hold_evictions(cluster: &Cluster) -> TcpListener {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "evictions" },
        "webhooks": [{ "name": "evictions.example.com", "clientConfig": { "url": url }, "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"],
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"] }] }],
    });
    fleet::apply(cluster, &[webhook]).await;
    silent
}

/// No further pod is made in the namespace, which has four.
async fn hold_pods(cluster: &Cluster) {
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "pods", "namespace": "default" },
        "spec": { "hard": { "pods": "2" } } });
    fleet::apply(cluster, &[quota]).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client().await.unwrap(), "default");
    poll::until_async("the quota counts", async || {
        let used = quotas.get("pods").await.unwrap().status.and_then(|status| status.used);
        used.is_some_and(|used| used.get("pods").is_some_and(|pods| pods.0 == "4"))
    })
    .await;
}

/// The plan for the pod.
async fn plan(cluster: &Cluster, pod: &str) -> Option<Nomination> {
    let pod = of_namespace(cluster).await.get(pod).await.unwrap();
    Nomination::decode(pod.annotations().get(NOMINATION_ANNOTATION)?)
}

/// The controller is killed between the plan and the eviction, and between the eviction and the pod made in place of the one that moves.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_moves_for_one_that_waits_through_restarts_and_a_budget_keeps_the_other() {
    let cluster = fleet::start_with(2, 2, "Managed").await;
    gather(&cluster, "None").await;
    let instance = Instance::start(&cluster.kubeconfig(), "first");
    let (kept, kept_on) = movable(&cluster, "kept").await;
    cluster.create_pod(ungated("short", 1)).await.unwrap();
    assert_eq!(pods::node(&cluster, "short").await, kept_on, "the fullest node");
    let (moves, moves_from) = movable(&cluster, "moves").await;
    assert_ne!(moves_from, kept_on);
    cluster.kubectl(&["delete", "pod", "short", "-n", "default", "--force"]).await.unwrap();

    // Nobody moves unless the pool says so.
    cluster.create_pod(ungated("early", 2)).await.unwrap();
    let why = told(&cluster, "early", "NotAllocated").await;
    assert!(!why.contains("move"), "{why}");
    cluster.kubectl(&["delete", "pod", "early", "-n", "default", "--force"]).await.unwrap();

    // Budgets keep both.
    fleet::apply(&cluster, &[budget("kept"), budget("moves")]).await;
    gather(&cluster, "Move").await;
    cluster.create_pod(ungated("second", 2)).await.unwrap();
    let why = told(&cluster, "second", "NotAllocated").await;
    assert!(why.contains("pods that may move stay: PodDisruptionBudget default/"), "{why}");
    assert_eq!(plan(&cluster, "second").await, None);
    cluster.kubectl(&["delete", "pod", "second", "-n", "default", "--force"]).await.unwrap();

    // One may move now.
    cluster.kubectl(&["delete", "pdb", "moves", "-n", "default"]).await.unwrap();
    let silent = hold_evictions(&cluster).await;
    // No search for moves follows another at once.
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.create_pod(ungated("big", 2)).await.unwrap();
    poll::until_async("a move is planned", async || plan(&cluster, "big").await.is_some()).await;
    let planned = plan(&cluster, "big").await.unwrap();
    assert_eq!(planned.node, moves_from);
    let [place] = planned.moves.as_slice() else { panic!("{planned:?}") };
    assert!(place.pod.starts_with(&format!("default/{moves}/")) && place.node == kept_on, "{place:?}");
    let why = told(&cluster, "big", "NotAllocated").await;
    assert!(
        why.contains(&format!("it fits once default/{moves} moved elsewhere, where room is kept")),
        "{why}"
    );
    let eviction = silent.accept().await.unwrap();
    instance.kill();
    assert!(of_namespace(&cluster).await.get_opt(&moves).await.unwrap().is_some(), "it is not evicted yet");

    // It never gets the kept place, whoever leads.
    cluster.create_pod(ungated("visitor", 1)).await.unwrap();
    hold_pods(&cluster).await;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client().await.unwrap());
    webhooks.delete("evictions", &DeleteParams::default()).await.unwrap();
    drop((silent, eviction));
    let instance = Instance::start(&cluster.kubeconfig(), "second");
    let why = told(&cluster, &moves, "Evicted").await;
    assert_eq!(why, format!("moved so that default/big fits; its successor has room on {kept_on}"));
    poll::until_async("it is gone", async || {
        of_namespace(&cluster).await.get_opt(&moves).await.unwrap().is_none()
    })
    .await;
    instance.kill();

    let instance = Instance::start(&cluster.kubeconfig(), "third");
    assert_eq!(pods::node(&cluster, "big").await, moves_from);
    cluster.kubectl(&["delete", "resourcequota", "pods", "-n", "default"]).await.unwrap();
    assert_eq!(pods::nodes_of_app(&cluster, "moves", 1).await, [kept_on]);
    let visitor = of_namespace(&cluster).await.get("visitor").await.unwrap();
    assert_eq!(visitor.spec.unwrap().node_name, None);
    assert_eq!(pods::of_app(&cluster, "kept").await[0].name_any(), kept, "the other stays");
    instance.terminate();
    cluster.kubectl(&["delete", "pdb", "kept", "-n", "default"]).await.unwrap();
}
