//! Kueue in front: it decides when a job begins, and the controller where, once its gate is the last.

mod planned_ahead;

use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::GpuPool;
use tessera_api::steering::GATE;
use tessera_cluster::PodExt as _;
use tessera_fakes::poll;
use tessera_harness::workload_controllers::{Kueue, WorkloadControllers};
use tessera_harness::{Cluster, workspace};

use crate::gangs::workloads::{create, job_set, waits_whole};
use crate::gangs::{allocated, group, job};
use crate::instance::Instance;
use crate::{fleet, pods};

const KUEUES_GATE: &str = "kueue.x-k8s.io/admission";

/// Runs `kubectl gpu`.
fn run(cluster: &Cluster, arguments: &[&str]) -> Output {
    let programs = workspace::build_packages(&["kubectl-gpu"]).unwrap();
    let mut command = Command::new(programs.join("kubectl-gpu"));
    command.args(arguments).arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap()
}

/// What `kubectl gpu kueue` prints.
fn printed(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = run(cluster, &[&["kueue"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A team of this namespace, with so many cards of the only pool.
fn pool_and_quota() -> [Value; 2] {
    let api = "gpu.tessera.dev/v1alpha1";
    let amount = json!({ "name": "cards", "unit": "Cards", "guaranteed": 8, "limit": 12 });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } });
    [
        json!({ "apiVersion": api, "kind": "GpuPool", "metadata": { "name": "main" }, "spec": { "allocation": "Managed" } }),
        json!({ "apiVersion": api, "kind": "GpuQuota", "metadata": { "name": "vision" },
            "spec": { "namespaceSelector": selector, "amounts": [amount] } }),
    ]
}

/// Puts it in the queue.
fn queued(mut object: Value) -> Value {
    object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("train");
    object
}

/// Names of the pod's gates.
fn gates(pod: &Pod) -> Vec<&str> {
    pod.gates().collect()
}

async fn is_suspended(cluster: &Cluster, name: &str) -> bool {
    let jobs: Api<Job> = Api::namespaced(cluster.client().await.unwrap(), "default");
    jobs.get(name).await.unwrap().spec.unwrap().suspend == Some(true)
}

/// Kueue's Workloads.
async fn workloads(cluster: &Cluster) -> Api<DynamicObject> {
    let client = cluster.client().await.unwrap();
    let group = kube::discovery::group(&client, "kueue.x-k8s.io").await.unwrap();
    let (kind, _) = group.recommended_kind("Workload").unwrap();
    Api::namespaced_with(client, "default", &kind)
}

/// Waits until this owner's only workload waits for quota, as Kueue says.
async fn waits_for_quota(cluster: &Cluster, owner: &str) {
    let workloads = workloads(cluster).await;
    poll::until_async(&format!("Kueue holds {owner} back"), async || {
        let all = workloads.list(&Default::default()).await.unwrap();
        all.items.iter().any(|workload| {
            let is_of = workload.owner_references().iter().any(|reference| reference.name == owner);
            let conditions = workload.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            is_of && conditions.iter().any(|one| one["type"] == "QuotaReserved" && one["status"] == "False")
        })
    })
    .await;
}

/// The running parts, with a queue `train` for the team.
struct SetUp {
    controllers: WorkloadControllers,
    controller: Instance,
    kueue: Kueue,
}

impl SetUp {
    /// `arguments`: of `kubectl gpu kueue`.
    async fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        fleet::apply(cluster, &pool_and_quota()).await;
        // A running controller learns of a new kind after a while only.
        let controllers = WorkloadControllers::start(cluster).await.unwrap();
        let controller = Instance::start(&cluster.kubeconfig(), "only");
        let pools: Api<GpuPool> = Api::all(cluster.client().await.unwrap());
        poll::until_async("the pool's cards are counted", async || {
            pools.get("main").await.unwrap().status.is_some_and(|status| status.cards == 16)
        })
        .await;
        let fields: Value = serde_saphyr::from_str(&printed(cluster, &["--configuration"])).unwrap();
        let objects = printed(cluster, arguments);
        // From here on Kueue alone counts.
        cluster.kubectl(&["delete", "gpuquotas", "vision"]).await.unwrap();
        let kueue = Kueue::start(cluster, &fields).await.unwrap();
        poll::until_async("Kueue takes its objects", async || cluster.apply(&objects).await.is_ok()).await;
        let queue = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": { "name": "train", "namespace": "default" }, "spec": { "clusterQueue": "vision" } });
        fleet::apply(cluster, &[queue]).await;
        SetUp { controllers, controller, kueue }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kueue_admits_is_planned_whole() {
    let cluster = fleet::start_with(4, 4, "Managed").await;
    let SetUp { controllers, controller, kueue } = SetUp::start(&cluster, &[]).await;

    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kueue-manager-config", "namespace": "kueue-system" },
        "data": { "controller_manager_config.yaml": "waitForPodsReady: {timeout: 5m}" } });
    fleet::apply(&cluster, &[map]).await;
    let said = String::from_utf8(run(&cluster, &["doctor"]).stdout).unwrap();
    assert!(
        said.contains("Kueue evicts jobs whose pods are not ready after 5m (waitForPodsReady)"),
        "{said}"
    );

    for name in ["in-the-way-0", "in-the-way-1"] {
        pods::run(&cluster, name, 4).await;
    }
    // Twelve cards, as many as the team may have: admitted, and then planned whole.
    let mut train = job("train", 3, 4, group("train", 3));
    train["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = json!({ "cpu": "1m" });
    fleet::apply(&cluster, &[queued(train)]).await;
    let why = waits_whole(&cluster, "train", 3).await;
    assert!(why.contains("gang train: 2 of 3 pods that it needs fit now"), "{why}");
    assert!(!is_suspended(&cluster, "train").await);
    // Beyond the team's limit: without pods, or with Kueue's gate beside ours.
    fleet::apply(&cluster, &[queued(job("second", 2, 4, group("second", 2)))]).await;
    cluster.create_pod(queued(pods::pod("alone", 4))).await.unwrap();
    for owner in ["second", "alone"] {
        waits_for_quota(&cluster, owner).await;
    }
    for name in ["in-the-way-0", "in-the-way-1"] {
        cluster.delete_pod("default", name).await.unwrap();
    }
    pods::nodes_of_app(&cluster, "train", 3).await;
    // A node is free, and not for those that Kueue holds back.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let in_default: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), "default");
    let alone = in_default.get("alone").await.unwrap();
    let gates = gates(&alone);
    assert!([GATE, KUEUES_GATE].iter().all(|gate| gates.contains(gate)), "{gates:?}");
    assert_eq!(allocated(&cluster, "alone").await, 0);
    assert!(is_suspended(&cluster, "second").await && pods::of_app(&cluster, "second").await.is_empty());

    cluster.kubectl(&["delete", "job", "train"]).await.unwrap();
    pods::node(&cluster, "alone").await;
    pods::nodes_of_app(&cluster, "second", 2).await;

    cluster.kubectl(&["delete", "job", "second"]).await.unwrap();
    cluster.kubectl(&["delete", "pod", "alone"]).await.unwrap();
    for name in ["in-the-way-0", "in-the-way-1"] {
        pods::run(&cluster, name, 4).await;
    }
    create(&cluster, queued(job_set())).await;
    let why = waits_whole(&cluster, "pretrain", 3).await;
    assert!(why.contains("gang pretrain: 2 of 3 pods that it needs fit now"), "{why}");
    cluster.delete_pod("default", "in-the-way-1").await.unwrap();
    pods::nodes_of_app(&cluster, "pretrain", 3).await;

    cluster.kubectl(&["delete", "jobsets", "pretrain"]).await.unwrap();
    fleet::delete_workloads(&cluster).await;
    controller.terminate();
    kueue.stop(&cluster).await.unwrap();
    controllers.stop(&cluster).await.unwrap();
}
