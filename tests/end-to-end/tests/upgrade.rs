//! An upgrade of Kubernetes from 1.36 to 1.37 and back on the same etcd, part by part, while claims hold devices. The control plane
//! and the plugin are real; cards are emulated.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests have no #[test]")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::node_stand_in::{Machine, NodeStandIn, PodsOfNode};
use tessera_harness::{Cluster, ClusterOptions, Component, KubernetesVersion, workspace};
use tokio::time::{Instant, sleep};

const OLD: KubernetesVersion = KubernetesVersion::V1_36;
const NEW: KubernetesVersion = KubernetesVersion::V1_37;

/// Several times what the slowest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two cards are held through all of it, one whole and one by a partition; the third is for the pods of each step.
const CARDS: usize = 3;

const POOL: &str = r#"{"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "all"},
    "spec": {"offer": {"partitioning": {"profiles": ["1g.10gb"]}}}}"#;

struct Stage {
    cluster: Cluster,
    node: NodeStandIn,
    pods: PodsOfNode,
    kubectl_gpu: PathBuf,
}

/// A pod, and the claim of its name.
fn manifests(name: &str, class: &str) -> [Value; 2] {
    let request = json!({ "name": "gpu", "exactly": { "deviceClassName": class } });
    [
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "default" }, "spec": { "devices": { "requests": [request] } } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
                "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }] } }),
    ]
}

/// A rule for the third card, of the API that 1.37 serves by default.
fn rule(device: &str) -> Value {
    json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": { "name": "suspicious" },
        "spec": { "deviceSelector": { "driver": "gpu.tessera.dev", "device": device },
            "taint": { "key": "example.com/suspicious", "effect": "NoSchedule" } } })
}

impl Stage {
    async fn start() -> Self {
        let options = ClusterOptions { kubernetes: OLD, helm: true, ..ClusterOptions::scheduler_tier(1) };
        let cluster = Cluster::start(options).await.unwrap();
        let build = || workspace::build_packages(&["kubectl-gpu"]).unwrap();
        let programs = tokio::task::spawn_blocking(build).await.unwrap();
        let options = InstallationOptions { pools: vec![POOL.to_owned()], ..InstallationOptions::default() };
        let tessera = Installation::install(&cluster, &options).await.unwrap();
        let machine = Machine { hardware: "hgx-h100-80gb".to_owned(), cards: Some(CARDS), mig_mode: false };
        let node = NodeStandIn::start(&cluster, &tessera, "node-a", &machine).await.unwrap();
        let pods = node.serve(cluster.client().await.unwrap(), |_| false);
        Self { cluster, node, pods, kubectl_gpu: programs.join("kubectl-gpu") }
    }

    async fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.client().await.unwrap(), "default")
    }

    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so().await {
            let failures = self.pods.failures();
            assert!(Instant::now() < end, "{what}; of its pods failed last: {:?}", failures.last());
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn create(&self, name: &str, class: &str) {
        let text = manifests(name, class).map(|manifest| manifest.to_string()).join("\n---\n");
        self.cluster.apply(&text).await.unwrap();
    }

    /// Whether the pod's claim is prepared.
    async fn runs(&self, name: &str) -> bool {
        let pod = self.api::<Pod>().await.get(name).await.unwrap();
        pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
    }

    async fn until_it_runs(&self, name: &str) {
        self.until(&format!("{name} runs"), async || self.runs(name).await).await;
    }

    async fn delete(&self, name: &str) {
        let names = [format!("pod/{name}"), format!("resourceclaim/{name}")];
        self.cluster.kubectl(&["delete", &names[0], &names[1], "--wait=false"]).await.unwrap();
        let claims = self.api::<ResourceClaim>().await;
        self.until(&format!("{name} is gone"), async || {
            let is_prepared = self.pods.prepared().iter().any(|pod| pod.name == name);
            !is_prepared && claims.get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// What is to be the same before, between and after: allocations and users of claims, slices, and the plugin's records.
    async fn held(&self) -> Value {
        let claims = self.api::<ResourceClaim>().await.list(&ListParams::default()).await.unwrap();
        let claims: BTreeMap<String, _> =
            claims.items.into_iter().map(|claim| (claim.name_any(), claim.status)).collect();
        let slices: Api<ResourceSlice> = Api::all(self.cluster.client().await.unwrap());
        let slices = slices.list(&ListParams::default()).await.unwrap();
        let slices: BTreeMap<String, _> =
            slices.items.into_iter().map(|slice| (slice.name_any(), slice.spec)).collect();
        json!({ "claims": claims, "slices": slices, "journal": self.node.journal("claims").unwrap() })
    }

    /// Another program in the place of one that runs.
    async fn replace(&self, component: Component, version: KubernetesVersion) {
        self.cluster.stop_component(component).await.unwrap();
        self.cluster.start_component_of(component, version).await.unwrap();
        self.cluster.wait_until_ready().await.unwrap();
        if component == Component::ApiServer {
            let client = self.cluster.client().await.unwrap();
            let of = client.apiserver_version().await.unwrap().git_version;
            assert!(of.starts_with(&format!("v{version}.")), "{of}");
        }
        if component == Component::Scheduler {
            // As kubeadm has it, where the version is known from; of 1.36 a release without the faults that doctor tells.
            let image = format!("registry.k8s.io/kube-scheduler:v{version}.9");
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "kube-scheduler-node-a",
                    "namespace": "kube-system", "labels": { "component": "kube-scheduler", "tier": "control-plane" } },
                "spec": { "nodeName": "none", "containers": [{ "name": "kube-scheduler", "image": image }] } });
            self.cluster.apply(&pod.to_string()).await.unwrap();
        }
    }

    /// What `kubectl gpu doctor` says of the versions.
    async fn doctor(&self) -> Vec<String> {
        let output = Command::new(&self.kubectl_gpu)
            .args(["doctor", "-o", "json", "--kubeconfig"])
            .arg(self.cluster.kubeconfig())
            .output()
            .unwrap();
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let is_about =
            |finding: &&Value| finding["about"] == "kube-scheduler" || finding["about"] == "API server";
        found.iter().filter(is_about).map(|finding| finding["what"].as_str().unwrap().to_owned()).collect()
    }

    /// A pod gets the third card, and gives it back.
    async fn third_card_comes_and_goes(&self, step: &str) -> String {
        self.create("next", "gpu.tessera.dev").await;
        self.until_it_runs("next").await;
        let claim = self.api::<ResourceClaim>().await.get("next").await.unwrap();
        let results = claim.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap();
        assert_eq!(results.len(), 1, "{step}");
        self.delete("next").await;
        results.into_iter().next().unwrap().device
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_slices_outlive_an_upgrade_and_its_way_back() {
    let stage = Stage::start().await;
    stage.create("whole", "gpu.tessera.dev").await;
    stage.until_it_runs("whole").await;
    stage.create("part", "mig.gpu.tessera.dev").await;
    stage.until_it_runs("part").await;
    let third = stage.third_card_comes_and_goes("before").await;
    let held = stage.held().await;

    // The order that Kubernetes asks for, and back in the other.
    use Component::{ApiServer, ControllerManager, Scheduler};
    let up = [(ApiServer, NEW), (ControllerManager, NEW), (Scheduler, NEW)];
    let down = [(Scheduler, OLD), (ControllerManager, OLD), (ApiServer, OLD)];
    for (component, version) in up.into_iter().chain(down) {
        stage.replace(component, version).await;
        let step = format!("{component:?} is {version}");
        assert_eq!(stage.third_card_comes_and_goes(&step).await, third, "{step}");
        assert_eq!(stage.held().await, held, "{step}");
        let said = stage.doctor().await;
        match (component, version) {
            (Scheduler, NEW) => {
                assert_eq!(said, [""; 0], "{step}");
                // Rules are there by default, and stay in etcd on the way back.
                stage.cluster.apply(&rule(&third).to_string()).await.unwrap();
                stage.create("kept-away", "gpu.tessera.dev").await;
                stage.until("it fits nowhere", async || is_refused(&stage, "kept-away").await).await;
                stage.cluster.kubectl(&["delete", "devicetaintrule", "suspicious"]).await.unwrap();
                stage.until_it_runs("kept-away").await;
                stage.delete("kept-away").await;
                stage.cluster.apply(&rule("none").to_string()).await.unwrap();
            }
            (Scheduler, _) | (ControllerManager, OLD) => {
                assert!(
                    said.len() == 1 && said[0].contains("it ignores DeviceTaintRules"),
                    "{step}: {said:?}"
                );
            }
            _ => {}
        }
    }

    // The order that Kubernetes does not support: doctor says why nothing is scheduled any more.
    stage.replace(Scheduler, NEW).await;
    stage.create("next", "gpu.tessera.dev").await;
    sleep(Duration::from_secs(10)).await;
    assert!(!stage.runs("next").await && !is_refused(&stage, "next").await);
    let said = stage.doctor().await;
    assert!(said.len() == 1 && said[0].ends_with("does not serve, and schedules nothing"), "{said:?}");
    stage.replace(Scheduler, OLD).await;
    stage.until_it_runs("next").await;
    stage.delete("next").await;
    assert_eq!(stage.held().await, held);

    // What was prepared before can be given back.
    stage.delete("whole").await;
    stage.delete("part").await;
    assert_eq!(stage.node.journal("claims").unwrap(), [""; 0]);
    stage.node.stop().await.unwrap();
    stage.cluster.shutdown().await.unwrap();
}

/// Whether kube-scheduler has said that the pod fits on no node.
async fn is_refused(stage: &Stage, pod: &str) -> bool {
    let pod = stage.api::<Pod>().await.get(pod).await.unwrap();
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}
