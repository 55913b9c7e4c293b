//! Shares with multiprocessors of their own, on a cluster whose driver is for CUDA 13.1, unlike other cluster tests.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_harness::installation::{Installation, InstallationOptions, MACHINE};
use tessera_harness::scene::{LIMIT, eventually};
use tessera_harness::{CUDA_SAMPLE_IMAGE, Cluster, ClusterOptions, PodState, skip};

const NAMESPACE: &str = "default";

/// Shares with multiprocessors of their own, of all cards.
const POOL: &str = r#"{"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "shared"},
    "spec": {"offer": {"sharing": {"mps": {"staticPartitions": true, "defaultShares": 4}}}}}"#;

/// The objects for a pod with a share: `capacity` are the claim's requests. The scheduler chooses the card, unless
/// `card` names one.
fn pod(name: &str, capacity: &Value, card: Option<&str>) -> [Value; 2] {
    let attributes = r#"device.attributes["gpu.tessera.dev"]"#;
    let mut expression = format!(r#""staticPartitions" in {attributes}"#);
    if let Some(card) = card {
        expression += &format!(r#" && {attributes}.parentUUID == "{card}""#);
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "share", "exactly": {
            "deviceClassName": "mps.gpu.tessera.dev", "capacity": {"requests": capacity},
            "selectors": [{"cel": {"expression": expression}}],
        }}]}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "machine", "hostPath": {"path": MACHINE}}],
            "resourceClaims": [{"name": "share", "resourceClaimName": name}],
            "containers": [{
                "name": "main", "image": CUDA_SAMPLE_IMAGE, "imagePullPolicy": "Never",
                "command": ["/usr/bin/cuda-sample", "--hold"],
                "env": [{"name": "GPU_EMULATOR_MACHINE", "value": MACHINE}],
                "volumeMounts": [{"name": "machine", "mountPath": MACHINE}],
                "resources": {"claims": [{"name": "share"}]},
            }],
        },
    });
    [claim, pod]
}

/// The report of a pod's program about its device.
async fn device(cluster: &Cluster, pod: &str) -> Value {
    eventually(&format!("{pod} to say something"), async || {
        let log = cluster.logs_of(NAMESPACE, pod, Some("main")).await.ok()?;
        log.lines().find_map(|line| serde_json::from_str(line).ok())
    })
    .await
}

async fn run_in(cluster: &Cluster, pod: &str, words: &[&str]) -> String {
    let arguments = [&["exec", "-n", NAMESPACE, pod, "-c", "main", "--"], words].concat();
    cluster.try_kubectl(&arguments).await.unwrap().stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_has_multiprocessors_of_its_own() {
    if !skip::node_tier("each_pod_has_multiprocessors_of_its_own") {
        return;
    }
    let options = InstallationOptions {
        machine: ["--cuda-version", "13.1"].map(str::to_owned).to_vec(),
        values: vec!["sharing.mps.enabled=true".to_owned()],
        pools: vec![POOL.to_owned()],
        ..InstallationOptions::default()
    };
    let cluster =
        Cluster::start(ClusterOptions { helm: true, ..ClusterOptions::node_tier(1) }).await.unwrap();
    if let Err(error) = Installation::install(&cluster, &options).await {
        cluster.keep_logs();
        panic!("{error}");
    }
    let start = async |name: &str, capacity: Value, card: Option<&str>| {
        for object in pod(name, &capacity, card) {
            cluster.apply(&object.to_string()).await.unwrap();
        }
        if let Err(error) = cluster.wait_for_pod(NAMESPACE, name, PodState::Ready, LIMIT).await {
            let events = cluster.try_kubectl(&["get", "events", "-n", NAMESPACE]).await.unwrap().stdout;
            cluster.keep_logs();
            panic!("{error}\n{events}");
        }
        device(&cluster, name).await
    };
    // Quarters of 15 chunks of 8 multiprocessors.
    let mut cards = BTreeSet::new();
    let mut partitions = BTreeSet::new();
    let quarters = ["a", "b", "c", "d"];
    for name in quarters {
        let given = start(name, json!({}), None).await;
        assert_eq!(given["multiprocessors"], 24, "{given}");
        assert_eq!(given["memoryLimitMiB"], 20_224, "{given}");
        cards.insert(given["device"].as_str().unwrap().to_owned());
        let environment: Value = serde_json::from_str(&run_in(&cluster, name, &["/bin/env"]).await).unwrap();
        partitions.insert(environment["CUDA_MPS_SM_PARTITION"].as_str().unwrap().to_owned());
        assert!(environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"].is_null(), "{environment}");
    }
    assert_eq!((cards.len(), partitions.len()), (1, 4));
    // A program without its partition in the environment gets nothing.
    let without = ["/bin/env", "-u", "CUDA_MPS_SM_PARTITION", "/usr/bin/cuda-sample"];
    let refused = run_in(&cluster, "a", &without).await;
    assert!(refused.contains("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"), "{refused}");
    // No size below one chunk is published, so the scheduler rounds up to the smallest. It goes to the next card.
    let least = start("least", json!({"compute": "5", "memory": "1Gi"}), None).await;
    assert_eq!(least["multiprocessors"], 8, "{least}");
    assert!(!cards.contains(least["device"].as_str().unwrap()));
    // A share that ends makes room for others, of another size. The scheduler may hear of the end after the next claim, and
    // would then take another card.
    for name in ["a", "b"] {
        cluster.delete_pod(NAMESPACE, name).await.unwrap();
        cluster.kubectl(&["delete", "resourceclaim", name, "-n", NAMESPACE]).await.unwrap();
    }
    let card = cards.first().unwrap();
    let half = start("half", json!({"compute": "50"}), Some(card)).await;
    assert_eq!(half["multiprocessors"], 56, "{half}");
    assert_eq!(half["device"], card.as_str(), "{half}");
}
