//! The test cluster itself: what every other end-to-end test stands on.

use std::time::Duration;

use serde_json::json;
use tessera_tests::{Cluster, ClusterOptions, PodState, TEST_IMAGE, shared};

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_tier_binds_a_pod() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("binds-a-pod").await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "bound" },
        "spec": { "containers": [{ "name": "c", "image": "none" }] },
    });
    cluster.create_pod(pod).await.unwrap();
    let pod =
        cluster.wait_for_pod("default", "bound", PodState::Scheduled, Duration::from_secs(20)).await.unwrap();
    assert!(pod.spec.unwrap().node_name.is_some());
    eprintln!("{}", cluster.timings());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_tier_runs_a_pod() {
    let cluster = Cluster::start(ClusterOptions::node_tier(1)).await.unwrap();
    eprintln!("{}", cluster.timings());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "runs" },
        "spec": { "containers": [{
            "name": "c", "image": TEST_IMAGE, "command": ["/bin/hold", "view"], "env": [{ "name": "GREETING", "value": "hello" }],
        }] },
    });
    cluster.create_pod(pod).await.unwrap();
    cluster.wait_for_pod("default", "runs", PodState::Ready, Duration::from_secs(30)).await.unwrap();
    let view: serde_json::Value =
        serde_json::from_str(&cluster.logs_of("default", "runs", None).await.unwrap()).unwrap();
    assert_eq!(view["environment"]["GREETING"], "hello");
    let said = cluster.exec("default", "runs", None, &["/bin/echo", "here"]).await.unwrap();
    assert_eq!(said, "here\n");
    cluster.delete_pod("default", "runs").await.unwrap();
}
