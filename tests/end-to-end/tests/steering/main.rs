//! Steering from the chart to the containers: the admission policy holds pods back, the controller proposes nodes,
//! kube-scheduler allocates, pods run, a pool becomes managed, the chart is upgraded and rolled back, and an uninstallation lets
//! go whoever still waits and leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests have no #[test]")]

mod life;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_api::steering::GATE;
use tessera_harness::installation::{Installation, InstallationOptions, NAMESPACE as RELEASE};
use tessera_harness::scene::each_right_is_used;
use tessera_harness::{Cluster, ClusterOptions, PodState, TEST_IMAGE, skip};

const LIMIT: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "steered";

async fn apply(cluster: &Cluster, manifest: &str) {
    let arguments = ["apply", "--server-side", "--namespace", NAMESPACE, "-f", "-"];
    cluster.kubectl_with_input(&arguments, manifest).await.unwrap();
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

/// A Job of pods with one card each, that end at once.
fn short_pods(namespace: &str) -> Value {
    let template = json!({ "spec": { "restartPolicy": "Never",
        "containers": [{ "name": "c", "image": TEST_IMAGE, "imagePullPolicy": "Never", "command": ["/bin/view"],
            "resources": { "claims": [{ "name": "card" }] } }],
        "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": "one-card" }] } });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "short", "namespace": namespace },
        "spec": { "parallelism": 3, "completions": 9, "backoffLimit": 0, "template": template },
    })
}

/// Watches all claims, and gathers devices that two of them have at once.
fn watch_owners(client: kube::Client) -> (tokio::task::JoinHandle<()>, Arc<Mutex<Vec<String>>>) {
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = found.clone();
    let task = tokio::spawn(async move {
        let claims: Api<ResourceClaim> = Api::all(client);
        let mut events = pin!(watcher(claims, watcher::Config::default()));
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(claim) | Event::InitApply(claim)) => {
                    let name = format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
                    let devices = devices(&claim);
                    let others = owners.iter().filter(|(other, _)| **other != name);
                    let twice = others.filter(|(_, theirs)| !theirs.is_disjoint(&devices));
                    told.lock()
                        .unwrap()
                        .extend(twice.map(|(other, _)| format!("{name} and {other}: {devices:?}")));
                    owners.insert(name, devices);
                }
                Ok(Event::Delete(claim)) => {
                    owners.remove(&format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any()));
                }
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => told.lock().unwrap().push(format!("the watch broke: {error}")),
            }
        }
    });
    (task, found)
}

fn devices(claim: &ResourceClaim) -> BTreeSet<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().map(|result| format!("{}/{}", result.pool, result.device)).collect()
}

/// The pool changes hands while pods come and go, of a namespace that is steered and one that is not: each gets a card in the
/// end, and no card has two owners at any time.
async fn change_hands_under_load(cluster: &Cluster) {
    let client = cluster.client().await.unwrap();
    let (task, twice) = watch_owners(client.clone());
    let template = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": "one-card", "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "card", "exactly": { "deviceClassName": "gpu.tessera.dev" } }] } } } });
    let manifests =
        [template, short_pods("default"), short_pods(NAMESPACE)].map(|manifest| manifest.to_string());
    cluster.apply(&manifests.join("\n---\n")).await.unwrap();
    let jobs: Api<Job> = Api::all(client);
    let succeeded = async || {
        let jobs = jobs.list(&ListParams::default()).await.unwrap().items;
        let short = jobs.iter().filter(|job| job.name_any() == "short");
        short.filter_map(|job| job.status.as_ref()?.succeeded).sum::<i32>()
    };
    for (least, allocation) in [(1, "Native"), (4, "Managed"), (9, "Native"), (14, "Managed")] {
        until("some pods have ended", async || succeeded().await >= least).await;
        let patch = json!({ "spec": { "allocation": allocation } }).to_string();
        cluster.kubectl(&["patch", "gpupool", "main", "--type=merge", "-p", &patch]).await.unwrap();
    }
    until("all pods have ended", async || succeeded().await == 18).await;
    task.abort();
    assert_eq!(*twice.lock().unwrap(), [""; 0]);
}

/// Commands run where the chart's emulated machine is, and no two nodes have the same cards.
async fn each_node_is_another_machine(cluster: &Cluster, tessera: &Installation) {
    let mut cards = BTreeSet::new();
    for pod in tessera.all_plugin_pods(cluster).await.unwrap() {
        let name = pod.name_any();
        let smi = [
            "exec",
            &name,
            "-n",
            RELEASE,
            "-c",
            "emulated-machine",
            "--",
            "/driver-root/bin/nvidia-smi",
            "-L",
        ];
        cards.extend(cluster.kubectl(&smi).await.unwrap().lines().map(str::to_owned));
    }
    assert_eq!(cards.len(), 4 * cluster.nodes().len(), "{cards:?}");
}

/// Runs `kubectl gpu`.
async fn kubectl_gpu(cluster: &Cluster, arguments: &[&str]) -> Output {
    let programs = tessera_workspace::build_packages(&["kubectl-gpu"]).unwrap();
    let mut command = tokio::process::Command::new(programs.join("kubectl-gpu"));
    command.args(arguments).arg("--kubeconfig").arg(cluster.kubeconfig());
    command.output().await.unwrap()
}

/// `kubectl gpu top` asks the controller by a forwarded port, and that has asked the node's plugin.
async fn top_tells(cluster: &Cluster, node: &str) {
    let cards = async || {
        let output = kubectl_gpu(cluster, &["top", "cards", "--node", node, "-o", "json"]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice::<Vec<Value>>(&output.stdout).map_err(|_| said)
    };
    let is_told = async || {
        let told = cards().await.unwrap_or_default();
        let allocated = told.iter().filter(|card| card["allocated"] == 1.0).count();
        told.len() == 4 && allocated == 2 && told.iter().all(|card| card["powerWatts"].is_number())
    };
    let end = Instant::now() + LIMIT;
    while !is_told().await {
        assert!(Instant::now() < end, "two cards allocated, and what each does: {:?}", cards().await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What would take managed cards past the controller is refused.
async fn go_around(cluster: &Cluster) {
    let tolerates = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "tolerates" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu.tessera.dev",
            "tolerations": [{ "operator": "Exists" }] } }] } } });
    let create = ["create", "--namespace", NAMESPACE, "-f", "-"];
    let error = cluster.kubectl_with_input(&create, &tolerates.to_string()).await.unwrap_err().to_string();
    assert!(error.contains("managed"), "{error}");
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let all = claims.list(&ListParams::default()).await.unwrap().items;
    let taken = all.iter().find(|claim| !devices(claim).is_empty()).expect("a claim with devices");
    let mine = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "mine" },
        "spec": taken.spec });
    cluster.kubectl_with_input(&create, &mine.to_string()).await.unwrap();
    let status = json!({ "status": { "allocation": taken.status.as_ref().unwrap().allocation } }).to_string();
    let patch = [
        "patch",
        "resourceclaim",
        "mine",
        "--namespace",
        NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    let error = cluster.kubectl(&patch).await.unwrap_err().to_string();
    assert!(error.contains("allocat"), "{error}");
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The pool is managed while pods run: they keep their cards, and the next claim is allocated by the controller, with the
/// rights that the chart gives it and past the chart's policies.
async fn allocate_managed(cluster: &Cluster) {
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
    let options = ClusterOptions { helm: true, audit: true, ..ClusterOptions::node_tier(2) };
    let cluster = Cluster::start(options).await.unwrap();
    let installation = InstallationOptions {
        hardware: "gb200-tray".to_owned(),
        emulated_by_chart: true,
        pools: vec![include_str!("../../../../examples/steering/pool.yaml").to_owned()],
        values: vec!["managed.handoverSeconds=5".to_owned()],
        ..InstallationOptions::default()
    };
    let tessera = Installation::install(&cluster, &installation).await.unwrap();
    each_node_is_another_machine(&cluster, &tessera).await;
    cluster.apply(include_str!("../../../../examples/steering/namespace.yaml")).await.unwrap();

    apply(&cluster, include_str!("../../../../examples/steering/notebooks.yaml")).await;
    let notebooks = node(&cluster, "notebook-1", PodState::Ready).await;
    assert_eq!(node(&cluster, "notebook-2", PodState::Ready).await, notebooks);
    top_tells(&cluster, &notebooks).await;
    apply(&cluster, include_str!("../../../../examples/steering/job.yaml")).await;
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
    cluster.delete_pod(NAMESPACE, "holds").await.unwrap();
    change_hands_under_load(&cluster).await;
    allocate_managed(&cluster).await;
    queue::shows_who_waits(&cluster).await;
    go_around(&cluster).await;
    assert_eq!(node(&cluster, "notebook-1", PodState::Ready).await, notebooks);
    life::upgrade_and_roll_back(&cluster, &tessera, &installation).await;
    // What is chance, or asked besides, or of a kind that this API server does not have: `chart/rights.rs`.
    let elsewhere = [
        "patch resourceclaims/binding.resource.k8s.io",
        "create events.events.k8s.io",
        "patch events.events.k8s.io",
        "patch gpuquotas/status.gpu.tessera.dev",
        "watch devicetaintrules.resource.k8s.io",
        "watch jobsets.jobset.x-k8s.io",
        "watch leaderworkersets.leaderworkerset.x-k8s.io",
        "watch podgroups.scheduling.k8s.io",
        "watch workloads.kueue.x-k8s.io",
        "watch admissionchecks.kueue.x-k8s.io",
        "watch resourceflavors.kueue.x-k8s.io",
        "patch workloads.kueue.x-k8s.io",
        "patch workloads/status.kueue.x-k8s.io",
        "patch admissionchecks/status.kueue.x-k8s.io",
    ];
    each_right_is_used(&cluster, "tessera-controller", &elsewhere).await;
    apply(&cluster, &four_cards("waits")).await;
    let gates = |pod: &Pod| {
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        gates.into_iter().any(|gate| gate.name == GATE)
    };
    assert!(gates(&pods.get("waits").await.unwrap()), "the policy of the chart adds the gate");
    life::uninstall(&cluster).await;
    assert!(!gates(&pods.get("waits").await.unwrap()), "nobody would lift it any more");
    cluster.shutdown().await.unwrap();
}
