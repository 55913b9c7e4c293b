//! The AdmissionCheck `gpu.tessera.dev/plan`: a job is admitted once all its pods have room.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::kueue::{KeptRoom, ROOM_ANNOTATION};
use tessera_cluster::PodExt as _;
use tessera_fakes::poll;
use tessera_harness::Cluster;

use super::{SetUp, is_suspended, queued, workloads};
use crate::gangs::{allocated, group, job};
use crate::instance::Instance;
use crate::{fleet, pods};

const CHECK: &str = "tessera-plan";

/// Sets how long plans may take in the nodes' reports.
async fn reserve_after(cluster: &Cluster, seconds: u32) {
    for number in 0..4 {
        fleet::report(cluster, number, "placement", &json!({ "reserveAfterSeconds": seconds })).await;
    }
}

/// The Workload of this Job.
async fn workload_of(cluster: &Cluster, job: &str) -> Option<DynamicObject> {
    let all = workloads(cluster).await.list(&Default::default()).await.unwrap();
    let is_of = |one: &DynamicObject| one.owner_references().iter().any(|owner| owner.name == job);
    all.items.into_iter().find(is_of)
}

/// Waits until the Job's check says so, and returns it.
async fn until_check(cluster: &Cluster, job: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut seen = Value::Null;
    poll::until_async(&format!("what the check {name} of {job} says"), async || {
        let Some(workload) = workload_of(cluster, job).await else { return false };
        let checks = workload.data["status"]["admissionChecks"].as_array().cloned().unwrap_or_default();
        seen = checks.into_iter().find(|check| check["name"] == name).unwrap_or_default();
        is_so(&seen)
    })
    .await;
    seen
}

fn message(check: &Value) -> &str {
    check["message"].as_str().unwrap_or_default()
}

async fn is_admitted(cluster: &Cluster, job: &str) -> bool {
    let workload = workload_of(cluster, job).await.unwrap();
    let conditions = workload.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "Admitted" && one["status"] == "True")
}

/// Writes the condition of a check, as its controller would.
async fn activate(cluster: &Cluster, check: &str) {
    let active = json!({ "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
    let patch = json!({ "status": { "conditions": [active] } }).to_string();
    let arguments = ["patch", "admissionchecks", check, "--subresource=status", "--type=merge", "-p", &patch];
    cluster.kubectl(&arguments).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_admitted_once_all_its_pods_have_room() {
    let cluster = fleet::start_with(4, 4, "Managed").await;
    reserve_after(&cluster, 4).await;
    let SetUp { controllers, controller, kueue } = SetUp::start(&cluster, &["--admission-check"]).await;
    controller.terminate();
    let controller = Instance::start(&cluster.kubeconfig(), "after-kueue");

    // Ready at once.
    fleet::apply(&cluster, &[queued(job("first", 2, 4, group("first", 2)))]).await;
    let mut nodes = pods::nodes_of_app(&cluster, "first", 2).await;
    let check = until_check(&cluster, "first", CHECK, |check| check["state"] == "Ready").await;
    assert!(message(&check).starts_with("room is kept on n0"), "{check}");
    let workload = workload_of(&cluster, "first").await.unwrap();
    let room = KeptRoom::decode(&workload.annotations()[ROOM_ANNOTATION]).unwrap();
    let mut kept: Vec<String> = room.places.iter().map(|place| place.node.clone()).collect();
    kept.sort();
    nodes.sort();
    assert_eq!(kept, nodes, "where the room was");

    // There is quota, and no room: Kueue is told to come again, and nothing is made.
    for name in ["in-the-way-0", "in-the-way-1"] {
        pods::run(&cluster, name, 4).await;
    }
    fleet::apply(&cluster, &[queued(job("second", 2, 2, group("second", 2)))]).await;
    let waits = until_check(&cluster, "second", CHECK, |check| message(check).contains("fit now")).await;
    assert!(message(&waits).contains("0 of 2 pods that it needs fit now"), "{waits}");
    assert_eq!(waits["state"], "Pending", "{waits}");
    let again = until_check(&cluster, "second", CHECK, |check| {
        check["requeueAfterSeconds"].as_u64().is_some_and(|seconds| seconds >= 8)
    })
    .await;
    println!("after two tries: {again}");
    assert!(is_suspended(&cluster, "second").await && !is_admitted(&cluster, "second").await);
    assert!(pods::of_app(&cluster, "second").await.is_empty());
    for name in ["in-the-way-0", "in-the-way-1"] {
        cluster.delete_pod("default", name).await.unwrap();
    }
    pods::nodes_of_app(&cluster, "second", 2).await;
    for name in ["first", "second"] {
        cluster.kubectl(&["delete", "job", name]).await.unwrap();
    }
    poll::until_async("their cards are free", async || allocated(&cluster, "first").await == 0).await;

    // The controller is killed between the answer and the pods: another check is not Ready yet.
    reserve_after(&cluster, 120).await;
    let other = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": { "name": "other" },
        "spec": { "controllerName": "example.com/other" } });
    fleet::apply(&cluster, &[other]).await;
    activate(&cluster, "other").await;
    let strategy = json!({ "spec": { "admissionChecksStrategy": { "admissionChecks": [{ "name": CHECK }, { "name": "other" }] } } });
    cluster
        .kubectl(&["patch", "clusterqueue", "vision", "--type=merge", "-p", &strategy.to_string()])
        .await
        .unwrap();
    poll::until_async("their cards are free", async || allocated(&cluster, "second").await == 0).await;
    fleet::apply(&cluster, &[queued(job("third", 3, 4, group("third", 3)))]).await;
    until_check(&cluster, "third", CHECK, |check| check["state"] == "Ready").await;
    controller.kill();
    let controller = Instance::start(&cluster.kubeconfig(), "next");
    pods::run(&cluster, "takes-the-rest", 4).await;
    cluster.create_pod(pods::pod("waits", 4)).await.unwrap();
    let why = crate::steered::told(&cluster, "waits", "NotAllocated").await;
    println!("with the room kept: {why}");
    assert!(pods::of_app(&cluster, "third").await.is_empty());
    let workload = workload_of(&cluster, "third").await.unwrap();
    let mut checks = workload.data["status"]["admissionChecks"].clone();
    for check in checks.as_array_mut().unwrap().iter_mut().filter(|check| check["name"] == "other") {
        check["state"] = json!("Ready");
    }
    let patch = json!({ "status": { "admissionChecks": checks } });
    let written = workloads(&cluster).await;
    written.patch_status(&workload.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    pods::nodes_of_app(&cluster, "third", 3).await;
    let in_default: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    assert!(in_default.get("waits").await.unwrap().node_name().is_none(), "it would have had a node");

    cluster.kubectl(&["delete", "job", "third"]).await.unwrap();
    pods::node(&cluster, "waits").await;
    fleet::delete_workloads(&cluster).await;
    controller.terminate();
    kueue.stop(&cluster).await.unwrap();
    controllers.stop(&cluster).await.unwrap();
}
