//! Extended resource names that kube-scheduler forgets.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use serde_json::{Value, json};
use tessera_harness::Cluster;

use crate::fleet;
use crate::instance::Instance;
use crate::pods;

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" }, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "c", "image": "none", "resources": { "limits": { "example.com/forgotten": 1 } } }] } })
}

fn class(name: &str) -> Value {
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name }, "spec": {
        "extendedResourceName": "example.com/forgotten",
        "selectors": [{ "cel": { "expression": "device.driver == 'gpu.tessera.dev'" } }] } })
}

/// Creates the pod, and says whether kube-scheduler knows nobody who has the resource.
async fn waits(cluster: &Cluster, name: &str) -> bool {
    cluster.create_pod(pod(name)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let end = Instant::now() + pods::LIMIT;
    loop {
        let pod = pods.get(name).await.unwrap();
        if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
            return false;
        }
        let mut conditions = pod.status.into_iter().flat_map(|status| status.conditions.unwrap_or_default());
        if let Some(message) = conditions.find_map(|condition| condition.message) {
            assert!(message.contains("Insufficient example.com/forgotten"), "{message}");
            return true;
        }
        assert!(Instant::now() < end, "{name} is neither bound nor refused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Two classes have a name, and one goes: kube-scheduler no longer knows the other by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_name_is_known_again() {
    let cluster = fleet::start_with(1, 4, "Native").await;
    let classes: Api<DeviceClass> = Api::all(cluster.client().await.unwrap());
    fleet::apply(&cluster, &[class("a-stays.example.com")]).await;
    fleet::apply(&cluster, &[class("b-goes.example.com")]).await;
    cluster.create_pod(pod("before")).await.unwrap();
    pods::node(&cluster, "before").await;
    classes.delete("b-goes.example.com", &DeleteParams::default()).await.unwrap();
    let end = Instant::now() + pods::LIMIT;
    // The first may come before kube-scheduler sees that the class is gone.
    let mut number = 0;
    while !waits(&cluster, &format!("waits-{number}")).await {
        number += 1;
    }
    let controller = Instance::start(&cluster.kubeconfig(), "only");
    loop {
        let stays = classes.get("a-stays.example.com").await.unwrap();
        if stays.annotations().contains_key("gpu.tessera.dev/touched") {
            break;
        }
        assert!(Instant::now() < end, "the class was not touched");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.create_pod(pod("after")).await.unwrap();
    pods::node(&cluster, "after").await;
    controller.terminate();
    classes.delete("a-stays.example.com", &DeleteParams::default()).await.unwrap();
}
