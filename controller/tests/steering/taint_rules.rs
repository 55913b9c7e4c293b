//! DeviceTaintRules of administrators: the controller keeps new claims from their devices as kube-scheduler does.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use tessera_harness::{Cluster, KubernetesVersion};

use crate::fleet::{self, DRIVER};
use crate::instance::Instance;
use crate::managed::{allocation, claims, ungated};
use crate::pods;
use crate::steered::told;

/// New claims are kept from these devices.
fn rule(name: &str, mut devices: Value) -> Value {
    devices["driver"] = json!(DRIVER);
    json!({
        "apiVersion": KubernetesVersion::of_tests().taint_rules(), "kind": "DeviceTaintRule",
        "metadata": { "name": name },
        "spec": { "deviceSelector": devices, "taint": { "key": "example.com/suspicious", "effect": "NoSchedule" } },
    })
}

/// The device of the pod's only claim.
async fn device(cluster: &Cluster, pod: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let of_pod = pods.get(pod).await.unwrap().status.unwrap().resource_claim_statuses.unwrap();
    let claim = claims(cluster).await.get(of_pod[0].resource_claim_name.as_deref().unwrap()).await.unwrap();
    let results = allocation(&claim).unwrap().devices.clone().unwrap().results.unwrap();
    results[0].device.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_cards_under_a_rule_are_left() {
    let cluster = fleet::start_with(1, 4, "Managed").await;
    let pool = format!("{DRIVER}/n00");
    let of_card = |card: &str| rule(card, json!({ "pool": pool, "device": card }));
    fleet::apply(&cluster, &["gpu-01-00", "gpu-02-00", "gpu-03-00"].map(of_card)).await;
    let controller = Instance::start(&cluster.kubeconfig(), "first");
    cluster.create_pod(ungated("first", 1)).await.unwrap();
    pods::node(&cluster, "first").await;
    assert_eq!(device(&cluster, "first").await, "gpu-04-00");

    cluster.create_pod(ungated("second", 1)).await.unwrap();
    told(&cluster, "second", "NotAllocated").await;
    cluster.kubectl(&["delete", "devicetaintrule", "gpu-02-00"]).await.unwrap();
    pods::node(&cluster, "second").await;
    assert_eq!(device(&cluster, "second").await, "gpu-02-00");
    controller.terminate();
}
