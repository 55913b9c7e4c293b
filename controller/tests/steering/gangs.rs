//! Gangs on a real control plane: all of their pods are bound, or none holds anything.

mod pod_group;
mod preemption;
pub mod workloads;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};
use tessera_fakes::poll;
use tessera_harness::Cluster;

use crate::instance::Instance;
use crate::managed::{allocation, claims};
use crate::steered::told;
use crate::{fleet, pods};

/// An Indexed Job of so many pods with so many cards each.
pub fn job(name: &str, pods: usize, cards: usize, labels: Value) -> Value {
    let mut all = json!({ "app": name });
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "completionMode": "Indexed", "parallelism": pods, "completions": pods,
            "template": { "metadata": { "labels": all }, "spec": pods::spec(cards) } },
    })
}

/// The labels by which pods name their gang.
pub fn group(name: &str, size: usize) -> Value {
    json!({ "gpu.tessera.dev/group": name, "gpu.tessera.dev/group-size": size.to_string() })
}

/// Claims of the app's pods that have devices.
pub async fn allocated(cluster: &Cluster, app: &str) -> usize {
    let all = claims(cluster).await.list(&ListParams::default()).await.unwrap();
    let of_app = |name: &str| name.starts_with(&format!("{app}-"));
    all.items.iter().filter(|claim| of_app(&claim.name_any()) && allocation(claim).is_some()).count()
}

/// Pods of the app without a gate.
async fn ungated(cluster: &Cluster, app: &str) -> usize {
    pods::of_app(cluster, app).await.iter().filter(|pod| !is_gated(pod)).count()
}

fn is_gated(pod: &Pod) -> bool {
    !pod.spec.as_ref().unwrap().scheduling_gates.clone().unwrap_or_default().is_empty()
}

/// Four pods of eight cards, with room for three: none holds anything until a node is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_waits_whole_and_runs_whole() {
    let cluster = fleet::start_with(4, 8, "Managed").await;
    let first = Instance::start(&cluster.kubeconfig(), "first");
    let taken = pods::run(&cluster, "in-the-way", 1).await;
    fleet::apply(&cluster, &[job("train", 4, 8, group("train", 4))]).await;
    poll::until_async("all of its pods exist", async || pods::of_app(&cluster, "train").await.len() == 4)
        .await;
    let name = |pods: Vec<Pod>| {
        let first = |pod: &&Pod| pod.labels().get("batch.kubernetes.io/job-completion-index").unwrap() == "0";
        pods.iter().find(first).unwrap().name_any()
    };
    let leader = name(pods::of_app(&cluster, "train").await);
    let why = told(&cluster, &leader, "NotAllocated").await;
    assert!(why.contains("gang train: 3 of 4 pods that it needs fit now"), "{why}");
    // What it does not use is not held.
    assert_eq!(allocated(&cluster, "train").await, 0);
    // Events get lost, so the reason comes to stand on each of its pods.
    poll::until_async("the reason stands on its pods", async || {
        let pods = pods::of_app(&cluster, "train").await;
        let noted = pods.iter().filter_map(|pod| Waiting::decode(pod.annotations().get(WAITING_ANNOTATION)?));
        noted.filter(|noted| noted.kind == "NoNode" && noted.message.contains("3 of 4 pods")).count() == 4
    })
    .await;
    assert!(pods::of_app(&cluster, "train").await.iter().all(is_gated));
    assert_ne!(pods::run(&cluster, "small", 8).await, taken);
    cluster.delete_pod("default", "small").await.unwrap();

    cluster.delete_pod("default", "in-the-way").await.unwrap();
    let begun = Instant::now();
    let nodes = pods::nodes_of_app(&cluster, "train", 4).await;
    println!("4 x 8 from the last deletion to the last binding: {:.1?}", begun.elapsed());
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 4);
    // Neighbours in rank are neighbours by name.
    for pod in pods::of_app(&cluster, "train").await {
        let rank = pod.labels()["batch.kubernetes.io/job-completion-index"].clone();
        assert_eq!(pod.annotations()[FORMED_ANNOTATION], "4", "the number of pods that started together");
        assert!(!pod.annotations().contains_key(WAITING_ANNOTATION), "it waits no more");
        assert_eq!(pod.spec.unwrap().node_name.unwrap(), format!("n0{rank}"));
    }
    cluster.kubectl(&["delete", "job", "train"]).await.unwrap();
    poll::until_async("its cards are free", async || allocated(&cluster, "train").await == 0).await;
    fleet::apply(&cluster, &[job("again", 4, 8, group("again", 4))]).await;
    while pods::of_app(&cluster, "again").await.len() < 4 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let begun = Instant::now();
    while ungated(&cluster, "again").await < 4 {
        assert!(begun.elapsed() < pods::LIMIT, "the gates stay");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("4 x 8 from the last pod created to the last gate lifted: {:.0?}", begun.elapsed());
    first.terminate();
}

/// Killed at different moments of the commit; its successor completes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_leaves_no_part_of_a_gang() {
    let cluster = fleet::start_with(8, 4, "Managed").await;
    let mut leader = Instance::start(&cluster.kubeconfig(), "leader-0");
    pods::run(&cluster, "before", 1).await;
    cluster.delete_pod("default", "before").await.unwrap();
    // So many have devices, and so many no gate.
    for (number, (seen, lifted)) in [(1, 0), (5, 0), (8, 1), (8, 4)].into_iter().enumerate() {
        let app = format!("gang{number}");
        fleet::apply(&cluster, &[job(&app, 8, 4, group(&app, 8))]).await;
        let end = Instant::now() + pods::LIMIT;
        // As soon as so many have devices: the rest of the commit may be done by then, or not.
        while allocated(&cluster, &app).await < seen || ungated(&cluster, &app).await < lifted {
            assert!(Instant::now() < end, "nothing is allocated");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        leader.kill();
        let left = pods::of_app(&cluster, &app).await;
        println!("killed with {} gates of 8 left", left.iter().filter(|pod| is_gated(pod)).count());
        leader = Instance::start(&cluster.kubeconfig(), &format!("leader-{}", number + 1));
        let nodes = pods::nodes_of_app(&cluster, &app, 8).await;
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 8);
        cluster.kubectl(&["delete", "job", &app, "--wait=false"]).await.unwrap();
        poll::until_async("its cards are free", async || allocated(&cluster, &app).await == 0).await;
    }
    leader.terminate();
}
