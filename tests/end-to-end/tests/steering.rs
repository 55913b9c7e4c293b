//! Steering from the chart to the containers: the admission policy holds pods back, the controller proposes nodes,
//! kube-scheduler allocates, pods run, a pool becomes managed, and an uninstallation lets go whoever still waits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests have no #[test]")]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_api::steering::GATE;
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::{Cluster, ClusterOptions, PodState, TEST_IMAGE, skip};

const LIMIT: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "steered";

async fn apply(cluster: &Cluster, manifest: &str) {
    let text = manifest.replace("$(IMAGE)", TEST_IMAGE);
    let arguments = ["apply", "--server-side", "--namespace", NAMESPACE, "-f", "-"];
    cluster.kubectl_with_input(&arguments, &text).await.unwrap();
}

async fn node(cluster: &Cluster, pod: &str, state: PodState) -> String {
    let pod = cluster.wait_for_pod(NAMESPACE, pod, state, LIMIT).await.unwrap();
    pod.spec.unwrap().node_name.unwrap()
}

/// A pod with all four cards of a node.
fn four_cards(name: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "c", "image": TEST_IMAGE, "imagePullPolicy": "Never",
                "command": ["/bin/hold", "view"], "resources": { "claims": [{ "name": "cards" }] } }],
            "resourceClaims": [{ "name": "cards", "resourceClaimTemplateName": "four-cards" }],
        },
    })
    .to_string()
}

/// The pool becomes managed while pods run: they keep their cards, and the next claim is allocated by the controller, with the
/// rights that the chart gives it and past the chart's policies.
async fn become_managed(cluster: &Cluster) {
    cluster.delete_pod(NAMESPACE, "holds").await.unwrap();
    let managed = r#"{"spec":{"allocation":"Managed"}}"#;
    cluster.kubectl(&["patch", "gpupool", "main", "--type=merge", "-p", managed]).await.unwrap();
    apply(cluster, &four_cards("managed")).await;
    node(cluster, "managed", PodState::Ready).await;
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let claims = claims.list(&ListParams::default()).await.unwrap().items;
    let is_of = |claim: &&ResourceClaim| claim.owner_references().iter().any(|owner| owner.name == "managed");
    let claim = claims.iter().find(is_of).expect("the pod's claim");
    assert!(claim.annotations().contains_key(EPOCH_ANNOTATION), "{:?}", claim.annotations());
}

#[tokio::test(flavor = "multi_thread")]
async fn notebooks_leave_room_for_a_job_and_uninstalling_lets_everybody_go() {
    if !skip::node_tier("notebooks_leave_room_for_a_job_and_uninstalling_lets_everybody_go") {
        return;
    }
    let options = ClusterOptions { helm: true, ..ClusterOptions::node_tier(2) };
    let cluster = Cluster::start(options).await.unwrap();
    let installation = InstallationOptions {
        hardware: "gb200-tray".to_owned(),
        pools: vec![include_str!("../../../examples/steering/pool.yaml").to_owned()],
        values: vec!["managed.handoverSeconds=5".to_owned()],
        ..InstallationOptions::default()
    };
    Installation::install(&cluster, &installation).await.unwrap();
    cluster.apply(include_str!("../../../examples/steering/namespace.yaml")).await.unwrap();

    apply(&cluster, include_str!("../../../examples/steering/notebooks.yaml")).await;
    let notebooks = node(&cluster, "notebook-1", PodState::Ready).await;
    assert_eq!(node(&cluster, "notebook-2", PodState::Ready).await, notebooks);
    apply(&cluster, include_str!("../../../examples/steering/job.yaml")).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let end = Instant::now() + LIMIT;
    let job = loop {
        let of_job = pods.list(&ListParams::default().labels("job-name=training")).await.unwrap().items;
        if let Some(pod) = of_job.first() {
            break pod.name_any();
        }
        assert!(Instant::now() < end, "the job made no pod");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_ne!(node(&cluster, &job, PodState::Succeeded).await, notebooks);

    // One more has the job's cards; the next waits, held back by the policy.
    apply(&cluster, &four_cards("holds")).await;
    node(&cluster, "holds", PodState::Ready).await;
    become_managed(&cluster).await;
    assert_eq!(node(&cluster, "notebook-1", PodState::Ready).await, notebooks);
    apply(&cluster, &four_cards("waits")).await;
    let gates = |pod: &Pod| {
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        gates.into_iter().any(|gate| gate.name == GATE)
    };
    assert!(gates(&pods.get("waits").await.unwrap()), "the policy of the chart adds the gate");
    cluster
        .helm(&["uninstall", "tessera", "--namespace", "tessera-system", "--timeout", "120s"])
        .await
        .unwrap();
    assert!(!gates(&pods.get("waits").await.unwrap()), "nobody would lift it any more");
    cluster.shutdown().await.unwrap();
}
