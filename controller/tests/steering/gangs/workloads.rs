//! JobSets and LeaderWorkerSets: their kinds are served here, and their pods are those that their controllers make.

use serde_json::{Value, json};
use tessera_fakes::poll;
use tessera_harness::Cluster;

use crate::instance::Instance;
use crate::steered::told;
use crate::{fleet, pods};

/// The kind, with any fields.
fn kind(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs" } },
        "spec": { "group": group, "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] },
    })
}

fn labelled(name: &str, cards: usize, labels: Value) -> Value {
    let mut pod = pods::pod(name, cards);
    pod["metadata"]["labels"] = labels;
    pod
}

/// What the JobSet controller (v0.10) makes of it.
fn of_job_set(job: &str, global: usize, index: usize) -> Value {
    let labels = json!({
        "app": "pretrain",
        "batch.kubernetes.io/job-completion-index": index.to_string(),
        "jobset.sigs.k8s.io/job-global-index": global.to_string(),
        "jobset.sigs.k8s.io/jobset-name": "pretrain",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/restart-attempt": "0",
    });
    labelled(&format!("pretrain-{job}-0-{index}"), 4, labels)
}

/// What the LeaderWorkerSet controller (v0.7) makes of a set of that name.
fn of_leader_worker_set(set: &str, worker: usize) -> Value {
    let labels = json!({
        "app": set,
        "leaderworkerset.sigs.k8s.io/name": set,
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/worker-index": worker.to_string(),
    });
    let mut pod = labelled(&format!("{set}-0-{worker}"), 4, labels);
    pod["metadata"]["annotations"] = json!({ "leaderworkerset.sigs.k8s.io/size": "2" });
    pod
}

async fn all_gated(cluster: &Cluster, app: &str) -> bool {
    pods::of_app(cluster, app).await.iter().all(super::is_gated)
}

#[tokio::test(flavor = "multi_thread")]
async fn job_sets_and_leader_worker_sets_are_gangs() {
    let cluster = fleet::start_with(5, 4, "Managed").await;
    let kinds = [
        kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
        kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ];
    fleet::apply(&cluster, &kinds).await;
    for name in ["jobsets.jobset.x-k8s.io", "leaderworkersets.leaderworkerset.x-k8s.io"] {
        let name = format!("crd/{name}");
        let wait = ["wait", "--for=condition=Established", name.as_str(), "--timeout=60s"];
        poll::until_async("the kind is served", async || cluster.kubectl(&wait).await.is_ok()).await;
    }
    let first = Instance::start(&cluster.kubeconfig(), "first");
    let opted_in = json!({ "gpu.tessera.dev/gang": "enabled" });
    let job_set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": "pretrain", "namespace": "default", "labels": opted_in },
        "spec": { "replicatedJobs": [
            { "name": "driver", "replicas": 1, "template": { "spec": { "parallelism": 1, "completions": 1 } } },
            { "name": "workers", "replicas": 1, "template": { "spec": { "parallelism": 2, "completions": 2 } } },
        ] },
    });
    let set = |name: &str, policy: &str| {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": { "name": name, "namespace": "default", "labels": opted_in },
            "spec": { "replicas": 1, "startupPolicy": policy, "leaderWorkerTemplate": { "size": 2 } },
        })
    };
    fleet::apply(&cluster, &[job_set, set("serve", "LeaderCreated"), set("late", "LeaderReady")]).await;

    cluster.create_pod(of_job_set("driver", 0, 0)).await.unwrap();
    cluster.create_pod(of_job_set("workers", 1, 0)).await.unwrap();
    cluster.create_pod(of_leader_worker_set("serve", 0)).await.unwrap();
    cluster.create_pod(of_leader_worker_set("late", 0)).await.unwrap();
    let why = told(&cluster, "late-0-0", "NotAllocated").await;
    assert!(why.contains("startupPolicy LeaderReady"), "{why}");
    // There is room for each of them, but not all of any has come.
    assert!(all_gated(&cluster, "pretrain").await && all_gated(&cluster, "serve").await);
    cluster.create_pod(of_job_set("workers", 1, 1)).await.unwrap();
    pods::nodes_of_app(&cluster, "pretrain", 3).await;
    assert!(all_gated(&cluster, "serve").await);
    cluster.create_pod(of_leader_worker_set("serve", 1)).await.unwrap();
    pods::nodes_of_app(&cluster, "serve", 2).await;
    assert!(all_gated(&cluster, "late").await);
    for name in ["jobsets.jobset.x-k8s.io", "leaderworkersets.leaderworkerset.x-k8s.io"] {
        cluster.kubectl(&["delete", "crd", name]).await.unwrap();
    }
    first.terminate();
}
