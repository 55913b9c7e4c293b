use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tessera_api::steering::GATE;
use tessera_harness::PodState;

use crate::instance::Instance;
use crate::{fleet, pods};

/// One cluster for all of it: a cluster takes longer than the cases.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_sent_to_the_node_that_loses_least() {
    let cluster = fleet::start(20, 4).await;
    let first = Instance::start(&cluster.kubeconfig(), "first");

    // Notebooks share a node; jobs of four cards have the others, all of them.
    let notebook = pods::run(&cluster, "notebook-0", 1).await;
    for number in 1..4 {
        assert_eq!(pods::run(&cluster, &format!("notebook-{number}"), 1).await, notebook);
    }
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "train", "namespace": "default" },
        "spec": { "parallelism": 17, "completions": 17,
            "template": { "metadata": { "labels": { "app": "train" } }, "spec": pods::spec(4) } },
    });
    fleet::apply(&cluster, &[job]).await;
    let nodes = pods::nodes_of_app(&cluster, "train", 17).await;
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 17);
    assert!(!nodes.contains(&notebook));

    // A Deployment; two nodes are left for it.
    fleet::apply(&cluster, &[pods::deployment("serve", 4, 2)]).await;
    let nodes = pods::nodes_of_app(&cluster, "serve", 4).await;
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 2);

    // What does not fit waits with its gate and is told why; deleting makes room, and the pod goes there.
    cluster.create_pod(pods::pod("late", 4)).await.unwrap();
    let waiting = told(&cluster, "late", "NotSteered").await;
    assert!(waiting.contains("not enough free devices"), "{waiting}");
    for number in 0..4 {
        cluster.delete_pod("default", &format!("notebook-{number}")).await.unwrap();
    }
    assert_eq!(pods::node(&cluster, "late").await, notebook);
    first.terminate();
}

/// Others' gates, deleted pods, and a controller that is away or killed in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_with_other_gates_and_without_a_controller() {
    let cluster = fleet::start(8, 4).await;
    let pods_api: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");

    // Nobody lifts the gate while no controller runs.
    cluster.create_pod(pods::pod("early", 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(pods_api.get("early").await.unwrap().spec.unwrap().node_name.is_none());
    let first = Instance::start(&cluster.kubeconfig(), "first");
    pods::node(&cluster, "early").await;

    // Another's gate comes first.
    let mut queued = pods::pod("queued", 1);
    queued["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({ "name": "example.com/queue" }));
    cluster.create_pod(queued).await.unwrap();
    pods::run(&cluster, "beside", 1).await;
    let gates = pods_api.get("queued").await.unwrap().spec.unwrap().scheduling_gates.unwrap_or_default();
    assert_eq!(gates.len(), 2);
    let patch =
        json!({ "spec": { "schedulingGates": [{ "$patch": "delete", "name": "example.com/queue" }] } });
    pods_api.patch("queued", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    pods::node(&cluster, "queued").await;

    // A pod that is deleted while it waits leaves nothing behind.
    cluster.create_pod(pods::pod("gone", 4)).await.unwrap();
    cluster.delete_pod("default", "gone").await.unwrap();

    // Killed in a burst; its successor does the rest, and no card is lost: 32 cards, 3 of them taken.
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "burst", "namespace": "default" },
        "spec": { "parallelism": 29, "completions": 29,
            "template": { "metadata": { "labels": { "app": "burst" } }, "spec": pods::spec(1) } },
    });
    fleet::apply(&cluster, &[job]).await;
    loop {
        let all = pods::of_app(&cluster, "burst").await;
        let lifted = |pod: &&Pod| {
            let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
            !gates.into_iter().any(|gate| gate.name == GATE)
        };
        if all.iter().filter(lifted).count() >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.kill();
    let second = Instance::start(&cluster.kubeconfig(), "second");
    pods::nodes_of_app(&cluster, "burst", 29).await;
    cluster.create_pod(pods::pod("none-left", 1)).await.unwrap();
    told(&cluster, "none-left", "NotSteered").await;
    second.terminate();
    cluster.wait_for_pod("default", "early", PodState::Scheduled, pods::LIMIT).await.unwrap();
}

/// Waits for an Event about the pod and returns its text.
pub async fn told(cluster: &tessera_harness::Cluster, pod: &str, reason: &str) -> String {
    let end = std::time::Instant::now() + pods::LIMIT;
    let selector = format!("involvedObject.name={pod},reason={reason}");
    loop {
        let arguments = [
            "get",
            "events",
            "-n",
            "default",
            "--field-selector",
            &selector,
            "-o",
            "jsonpath={.items[*].message}",
        ];
        let text = cluster.kubectl(&arguments).await.unwrap();
        if !text.is_empty() {
            return text;
        }
        if std::time::Instant::now() >= end {
            let events =
                cluster.kubectl(&["get", "events,pods", "-n", "default", "-o", "wide"]).await.unwrap();
            panic!("no Event {reason} about {pod}: {events}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
