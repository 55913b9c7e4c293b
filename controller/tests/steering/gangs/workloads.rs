//! JobSets and LeaderWorkerSets, whose pods their own controllers make.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tessera_fakes::poll;
use tessera_harness::Cluster;
use tessera_harness::workload_controllers::WorkloadControllers;

use super::{allocated, is_gated};
use crate::instance::Instance;
use crate::steered::told;
use crate::{fleet, pods};

/// A template of pods with all cards of a node, whose label `app` is that.
fn template(app: &str, restart: &str) -> Value {
    let mut spec = pods::spec(4);
    spec["restartPolicy"] = json!(restart);
    json!({ "metadata": { "labels": { "app": app } }, "spec": spec })
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "namespace": "default", "labels": { "gpu.tessera.dev/gang": "enabled" } })
}

/// A driver and two workers.
pub fn job_set() -> Value {
    let replicated = |name: &str, pods: usize| {
        json!({ "name": name, "replicas": 1, "template": { "spec": { "parallelism": pods, "completions": pods,
            "template": template("pretrain", "Never") } } })
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata("pretrain"),
        "spec": { "replicatedJobs": [replicated("driver", 1), replicated("workers", 2)] },
    })
}

/// So many groups of a leader and a worker.
fn leader_worker_set(name: &str, replicas: usize, policy: &str) -> Value {
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata(name),
        "spec": { "replicas": replicas, "startupPolicy": policy,
            "leaderWorkerTemplate": { "size": 2, "workerTemplate": template(name, "Always") } },
    })
}

/// Waits until the app has so many pods, of which none has anything.
pub async fn waits_whole(cluster: &Cluster, app: &str, count: usize) -> String {
    let all = async || pods::of_app(cluster, app).await;
    poll::until_async("all of its pods exist", async || all().await.len() == count).await;
    let name = all().await.iter().map(kube::ResourceExt::name_any).min().unwrap();
    let why = told(cluster, &name, "NotAllocated").await;
    assert!(all().await.iter().all(is_gated) && allocated(cluster, app).await == 0, "{why}");
    why
}

/// The API server calls webhooks as soon as they answer.
pub async fn create(cluster: &Cluster, object: Value) {
    let text = object.to_string();
    poll::until_async("it is admitted", async || cluster.apply(&text).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_sets_and_leader_worker_sets_are_gangs() {
    let cluster = fleet::start_with(4, 4, "Managed").await;
    let controllers = WorkloadControllers::start(&cluster).await.unwrap();
    let first = Instance::start(&cluster.kubeconfig(), "first");
    for name in ["in-the-way-0", "in-the-way-1"] {
        pods::run(&cluster, name, 4).await;
    }
    create(&cluster, job_set()).await;
    let why = waits_whole(&cluster, "pretrain", 3).await;
    assert!(why.contains("gang pretrain: 2 of 3 pods that it needs fit now"), "{why}");
    cluster.delete_pod("default", "in-the-way-1").await.unwrap();
    pods::nodes_of_app(&cluster, "pretrain", 3).await;
    // The garbage collector comes to know a new kind only after half a minute.
    cluster.kubectl(&["delete", "jobsets", "pretrain"]).await.unwrap();
    fleet::delete_workloads(&cluster).await;

    // Three nodes are free: enough for one of its groups.
    pods::run(&cluster, "in-the-way", 4).await;
    create(&cluster, leader_worker_set("serve", 2, "LeaderCreated")).await;
    let all = async || pods::of_app(&cluster, "serve").await;
    poll::until_async("all of its pods exist", async || all().await.len() == 4).await;
    pods::nodes_of_app(&cluster, "serve", 2).await;
    let groups = async |waits: bool| {
        let pods = all().await.into_iter().filter(|pod| is_gated(pod) == waits);
        pods.map(|pod| pod.labels()["leaderworkerset.sigs.k8s.io/group-index"].clone()).collect::<Vec<_>>()
    };
    let (waiting, running) = (groups(true).await, groups(false).await);
    assert!(waiting.len() == 2 && waiting[0] == waiting[1] && running[0] == running[1], "{waiting:?}");
    assert_eq!(allocated(&cluster, "serve").await, 2);
    create(&cluster, leader_worker_set("late", 1, "LeaderReady")).await;
    let why = waits_whole(&cluster, "late", 1).await;
    assert!(why.contains("startupPolicy LeaderReady"), "{why}");
    cluster.delete_pod("default", "in-the-way").await.unwrap();
    pods::nodes_of_app(&cluster, "serve", 4).await;
    assert_eq!(groups(true).await, [""; 0]);
    cluster.kubectl(&["delete", "leaderworkersets", "serve", "late"]).await.unwrap();
    fleet::delete_workloads(&cluster).await;
    first.terminate();
    controllers.stop(&cluster).await.unwrap();
}
