//! Manifests of public projects as they are, in a namespace whose limits become claims, and those of `examples/jobs`.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_cluster::AllocationExt;
use tessera_fakes::poll;
use tessera_harness::workload_controllers::{KubeRay, WorkloadControllers};
use tessera_harness::{Cluster, workspace};

use crate::conversion::convert;
use crate::fleet;
use crate::instance::Instance;
use crate::managed::{allocation, claims, ungated};
use crate::steered::told;

const NODES: usize = 4;
const CARDS: usize = 8;

/// Files of public projects, each with the number of its pods and of the cards of all of them.
const PUBLIC: [(&str, usize, usize); 9] = [
    ("gpu-pod.yaml", 1, 1),
    ("jobset.yaml", 4, 4),
    ("kubeflow-notebook.yaml", 1, 1),
    ("lws-vllm.yaml", 4, 32),
    ("ollama.yaml", 1, 1),
    ("pytorch-job.yaml", 2, 16),
    ("sglang.yaml", 1, 1),
    ("triton.yaml", 2, 2),
    ("vllm.yaml", 1, 1),
];

/// Two pods with eight cards each.
const EXAMPLES: [&str; 3] =
    ["examples/jobs/pytorch.yaml", "examples/jobs/server.yaml", "examples/jobs/ray.yaml"];

async fn pods(cluster: &Cluster) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    pods.list(&ListParams::default()).await.unwrap().items
}

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace::root().join(file)).unwrap()
}

/// Applies the manifests, waits until so many pods have a node, and their claims so many cards, and deletes all of it. Returns the pods.
async fn runs(cluster: &Cluster, file: &str, manifests: &str, count: usize, cards: usize) -> Vec<Pod> {
    // The API server calls webhooks as soon as they answer.
    poll::until_async("it is admitted", async || cluster.apply(manifests).await.is_ok()).await;
    let is_bound = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.is_some();
    let end = Instant::now() + crate::pods::LIMIT;
    let bound = loop {
        let pods = pods(cluster).await;
        if pods.len() == count && pods.iter().all(is_bound) {
            break pods;
        }
        if Instant::now() > end {
            let found = cluster.kubectl(&["get", "pods,events", "-o", "wide"]).await.unwrap();
            panic!("not all pods of {file} are bound: {found}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let claims = claims(cluster).await.list(&ListParams::default()).await.unwrap();
    let given = claims.iter().filter_map(allocation).map(|allocation| allocation.results().len());
    assert_eq!(given.sum::<usize>(), cards, "cards of {file}");
    let delete = ["delete", "--wait=false", "--filename=-"];
    cluster.kubectl_with_input(&delete, manifests).await.unwrap();
    fleet::delete_workloads(cluster).await;
    bound
}

/// As large as machines with eight cards are.
async fn enlarge_nodes(cluster: &Cluster) {
    let large = json!({ "cpu": "192", "memory": "2Ti", "ephemeral-storage": "8Ti", "pods": "110" });
    let patch = json!({ "status": { "capacity": large, "allocatable": large } }).to_string();
    for number in 0..NODES {
        let name = fleet::node_name(number);
        let patch = ["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &patch];
        cluster.kubectl(&patch).await.unwrap();
    }
}

/// Volcano and slurm-bridge write allocations themselves; managed cards are not theirs.
async fn others_schedulers_are_told(cluster: &Cluster) {
    for scheduler in ["volcano", "slurm-bridge-scheduler"] {
        let mut pod = ungated(scheduler, 1);
        pod["spec"]["schedulerName"] = json!(scheduler);
        cluster.create_pod(pod).await.unwrap();
        let why = told(cluster, scheduler, "NotAllocated").await;
        assert!(
            why.starts_with(&format!("its schedulerName is {scheduler}, and managed cards are for")),
            "{why}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_run_as_they_are() {
    let cluster = fleet::start_with(NODES, CARDS, "Native").await;
    enlarge_nodes(&cluster).await;
    convert(&cluster).await;
    let workload_controllers = WorkloadControllers::start(&cluster).await.unwrap();
    let kube_ray = KubeRay::start(&cluster).await.unwrap();
    let controller = Instance::start(&cluster.kubeconfig(), "only");
    let formed = |pod: &Pod| pod.annotations().get(FORMED_ANNOTATION).cloned();
    for file in EXAMPLES {
        // Gangs need managed cards.
        let kept = |line: &&str| !line.contains("gpu.tessera.dev/g");
        let manifests = read(file);
        let manifests: Vec<&str> = manifests.lines().filter(kept).collect();
        runs(&cluster, file, &manifests.join("\n"), 2, 2 * CARDS).await;
    }
    fleet::publish(&cluster, NODES, CARDS, "Managed").await;
    for file in EXAMPLES {
        let pods = runs(&cluster, file, &read(file), 2, 2 * CARDS).await;
        assert!(pods.iter().all(|pod| formed(pod).as_deref() == Some("2")), "{file} starts together");
    }
    for (file, count, cards) in PUBLIC {
        let manifests = read(&format!("controller/tests/steering/manifests/{file}"));
        runs(&cluster, file, &manifests, count, cards).await;
    }
    others_schedulers_are_told(&cluster).await;
    controller.terminate();
    kube_ray.stop(&cluster).await.unwrap();
    workload_controllers.stop(&cluster).await.unwrap();
}
