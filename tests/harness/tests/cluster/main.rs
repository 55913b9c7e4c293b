//! The test cluster itself: what every other end-to-end test stands on.
#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

mod leftovers;

use std::time::Duration;

use serde_json::{Value, json};
use tessera_harness::{
    Cluster, ClusterOptions, Component, Image, KubernetesVersion, PodState, TEST_IMAGE,
    scene::{ContainerView, eventually},
    shared, skip,
};

const LIMIT: Duration = Duration::from_secs(180);

/// A pod that runs one command of the test image.
fn pod(name: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "c", "image": TEST_IMAGE, "command": command }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_tier_binds_a_pod() {
    let cluster = shared::scheduler_tier().await.unwrap();
    cluster.add_node_object("binds-a-pod").await.unwrap();
    cluster.create_pod(pod("bound", &[])).await.unwrap();
    let bound = cluster.wait_for_pod("default", "bound", PodState::Scheduled, LIMIT).await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("binds-a-pod"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_sees_what_it_should() {
    if !skip::node_tier("a_pod_runs_and_sees_what_it_should") {
        return;
    }
    let cluster = shared::node_tier().await.unwrap();
    let mut wanted = pod("runs", &["/bin/hold", "view"]);
    wanted["spec"]["containers"][0]["env"] = json!([{ "name": "GREETING", "value": "hello" }]);
    // The runtime's own filter is asked for and dropped: such pods must run too.
    wanted["spec"]["securityContext"] = json!({ "seccompProfile": { "type": "RuntimeDefault" } });
    cluster.create_pod(wanted).await.unwrap();
    cluster.wait_for_pod("default", "runs", PodState::Ready, LIMIT).await.unwrap();
    let view = ContainerView::of(cluster, "default", "runs", "c").await;
    assert_eq!(view.environment["GREETING"], "hello");
    assert!(view.devices.iter().any(|device| device.path == "/dev/null" && device.kind == "character"));
    let said = cluster.exec("default", "runs", None, &["/bin/echo", "here"]).await.unwrap();
    assert_eq!(said, "here\n");
    cluster.delete_pod("default", "runs").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_speaks_with_the_api_server_as_its_service_account() {
    if !skip::node_tier("a_pod_speaks_with_the_api_server_as_its_service_account") {
        return;
    }
    let cluster = shared::node_tier().await.unwrap();
    cluster.create_pod(pod("speaks", &["/bin/hold"])).await.unwrap();
    cluster.wait_for_pod("default", "speaks", PodState::Ready, LIMIT).await.unwrap();
    let fetch = ["/bin/fetch", "https://10.96.0.1/version"];
    let version: Value =
        serde_json::from_str(&cluster.exec("default", "speaks", None, &fetch).await.unwrap()).unwrap();
    let of_tests = format!("v{}.", KubernetesVersion::of_tests());
    assert!(version["gitVersion"].as_str().unwrap().starts_with(&of_tests), "{version}");
    let refused =
        cluster.exec("default", "speaks", None, &["/bin/fetch", "https://10.96.0.1/api/v1/secrets"]).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("system:serviceaccount:default:default"), "{message}");
    cluster.delete_pod("default", "speaks").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_made_from_a_dynamic_program_runs() {
    if !skip::node_tier("an_image_made_from_a_dynamic_program_runs") {
        return;
    }
    let cluster = shared::node_tier().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    let program = tessera_harness::host::host_executable().unwrap();
    Image::from_binary("tessera.test/dynamic:1", &program).unwrap().write(&archive).unwrap();
    cluster.import_image(&archive).await.unwrap();
    let mut wanted = pod("dynamic", &["/usr/bin/cluster-host", "probe", "/tmp"]);
    wanted["spec"]["restartPolicy"] = json!("Never");
    wanted["spec"]["containers"][0]["image"] = json!("tessera.test/dynamic:1");
    cluster.create_pod(wanted).await.unwrap();
    // It starts, finds that a container may not make namespaces, and says so.
    cluster.wait_for_pod("default", "dynamic", PodState::Failed, LIMIT).await.unwrap();
    eventually("what it says", async || {
        let said = cluster.logs_of("default", "dynamic", None).await.ok()?;
        said.contains("does not let us make namespaces").then_some(())
    })
    .await;
    cluster.delete_pod("default", "dynamic").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_with_two_nodes_live_side_by_side() {
    if !skip::node_tier("two_clusters_with_two_nodes_live_side_by_side") {
        return;
    }
    let (first, second) = tokio::try_join!(
        Cluster::start(ClusterOptions::node_tier(2)),
        Cluster::start(ClusterOptions::node_tier(1))
    )
    .unwrap();
    for (cluster, name, node) in
        [(&first, "on-a", "node-a"), (&first, "on-b", "node-b"), (&second, "on-a", "node-a")]
    {
        let mut wanted = pod(name, &["/bin/hold"]);
        wanted["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        cluster.create_pod(wanted).await.unwrap();
    }
    for (cluster, name) in [(&first, "on-a"), (&first, "on-b"), (&second, "on-a")] {
        cluster.wait_for_pod("default", name, PodState::Ready, LIMIT).await.unwrap();
        // By way of its own node to its own API server.
        cluster.exec("default", name, None, &["/bin/fetch", "https://10.96.0.1/version"]).await.unwrap();
    }
    let names = second.kubectl(&["get", "pods", "-o", "name"]).await.unwrap();
    assert_eq!(names.trim(), "pod/on-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn components_can_be_stopped_and_started_one_by_one() {
    if !skip::node_tier("components_can_be_stopped_and_started_one_by_one") {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::node_tier(1)).await.unwrap();
    cluster.create_pod(pod("stays", &["/bin/hold"])).await.unwrap();
    let before = cluster.wait_for_pod("default", "stays", PodState::Ready, LIMIT).await.unwrap();

    cluster.stop_component(Component::ApiServer).await.unwrap();
    assert!(!cluster.try_kubectl(&["get", "nodes", "--request-timeout=2s"]).await.unwrap().success);
    cluster.start_component(Component::ApiServer).await.unwrap();
    cluster.restart_component(Component::Kubelet(0)).await.unwrap();
    cluster.restart_component(Component::Containerd(0)).await.unwrap();
    cluster.kill_component(Component::Scheduler).await.unwrap();
    cluster.start_component(Component::Scheduler).await.unwrap();
    cluster.wait_until_ready().await.unwrap();
    let after = cluster.wait_for_pod("default", "stays", PodState::Ready, LIMIT).await.unwrap();
    let id = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].container_id.clone()
    };
    assert_eq!(id(&before), id(&after), "its container outlived them all");

    cluster.pause_component(Component::ApiServer).await.unwrap();
    assert!(!cluster.try_kubectl(&["get", "nodes", "--request-timeout=1s"]).await.unwrap().success);
    cluster.resume_component(Component::ApiServer).await.unwrap();
    cluster.kubectl(&["get", "nodes", "--request-timeout=20s"]).await.unwrap();

    let boot_id = || async {
        let client = cluster.client().await.unwrap();
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
        nodes.get("node-a").await.unwrap().status.unwrap().node_info.unwrap().boot_id
    };
    let first = boot_id().await;
    cluster.reboot_node(0).await.unwrap();
    let end = std::time::Instant::now() + LIMIT;
    while boot_id().await == first {
        assert!(std::time::Instant::now() < end, "the node never told of its new boot");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = loop {
        match cluster.exec("default", "stays", None, &["/bin/echo", "again"]).await {
            Ok(said) => break said,
            Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(said, "again\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_cluster_can_be_taken_hold_of_again() {
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(1)).await.unwrap();
    let state = cluster.release().unwrap();
    let cluster = Cluster::attach(&state).await.unwrap();
    assert!(cluster.kubectl(&["get", "nodes", "-o", "name"]).await.unwrap().contains("node/node-a"));
    cluster.shutdown().await.unwrap();
    assert!(!state.exists());
    assert!(Cluster::attach(&state).await.is_err());
}
