//! Pods that ask for cards.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tessera_api::steering::GATE;
use tessera_harness::{Cluster, PodState};

pub const LIMIT: Duration = Duration::from_secs(60);

/// The spec of a pod with a claim for so many cards, and the gate.
pub fn spec(cards: usize) -> Value {
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "schedulingGates": [{ "name": GATE }],
        "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpus" }] } }],
        "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": format!("gpus-{cards}") }],
    })
}

pub fn pod(name: &str, cards: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" }, "spec": spec(cards) })
}

/// A Deployment of so many pods with so many cards each, and its name as their label `app`.
pub fn deployment(name: &str, replicas: usize, cards: usize) -> Value {
    let mut spec = spec(cards);
    spec["restartPolicy"] = json!("Always");
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": spec } },
    })
}

/// Creates the pod, waits until it is bound and returns its node.
pub async fn run(cluster: &Cluster, name: &str, cards: usize) -> String {
    cluster.create_pod(pod(name, cards)).await.unwrap();
    node(cluster, name).await
}

/// Waits until the pod is bound and returns its node.
pub async fn node(cluster: &Cluster, name: &str) -> String {
    let pod = cluster.wait_for_pod("default", name, PodState::Scheduled, LIMIT).await.unwrap();
    pod.spec.unwrap().node_name.unwrap()
}

/// All pods with this label `app`.
pub async fn of_app(cluster: &Cluster, app: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    pods.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items
}

/// Waits until so many pods of the app are bound, and returns their nodes.
pub async fn nodes_of_app(cluster: &Cluster, app: &str, count: usize) -> Vec<String> {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let pods = of_app(cluster, app).await;
        let nodes: Vec<String> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
        if nodes.len() >= count {
            return nodes;
        }
        let waiting: Vec<String> = pods
            .iter()
            .filter(|pod| pod.spec.as_ref().unwrap().node_name.is_none())
            .map(ResourceExt::name_any)
            .collect();
        assert!(
            std::time::Instant::now() < end,
            "{} of {count} are bound; waiting: {waiting:?}",
            nodes.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
