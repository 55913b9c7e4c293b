//! One cluster with Tessera for all tests of this program, and a namespace for each test.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{Api, Client, api::ListParams};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use serde_json::{Value, json};
pub use tessera_harness::scene::{ContainerView, DeviceNode, LIMIT, eventually};
use tessera_harness::{
    Cluster, ClusterOptions, Node, PodState,
    installation::{self, Installation, InstallationOptions},
    scene::{hold_and_view, in_namespace},
    skip,
};
use tokio::sync::OnceCell;

/// The DeviceClass of whole cards.
pub const CLASS: &str = "gpu.tessera.dev";
/// The DeviceClass of MIG partitions.
pub const MIG_CLASS: &str = "mig.gpu.tessera.dev";

/// Chart values.
const VALUES: [&str; 3] = [
    "extendedResourceNames.enabled=true",
    "sharing.mps.enabled=true",
    // Two looks tell what cards do; a test should not wait 30 s for them.
    "kubeletPlugin.usageIntervalSeconds=2",
];

/// The label by which pools select nodes.
pub const POOL_LABEL: &str = "example.com/pool";

/// Everything is offered at once, which does not disturb tests that need only a part, nor do words about idle claims; notebooks have time-slices alone.
fn pools() -> Vec<String> {
    let everything = json!({"sharing": {
        "mps": {"defaultShares": 4, "partitions": ["3g.40gb"]}, "timeSlicing": {"replicas": 10, "interval": "Short"}}});
    let idle = json!({"action": "Tell", "afterSeconds": 6});
    let notebooks = json!({"wholeCards": false, "partitioning": {"mode": "None"}, "sharing": {"timeSlicing": {"replicas": 4}}});
    let selector = json!({"matchLabels": {POOL_LABEL: "notebooks"}});
    vec![
        pool("everything", &json!({"offer": everything, "idle": idle})),
        pool("notebooks", &json!({"priority": 1, "nodeSelector": selector, "offer": notebooks})),
    ]
}

/// A GpuPool.
pub fn pool(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

static STAGE: OnceCell<Stage> = OnceCell::const_new();
static SCENES: AtomicU32 = AtomicU32::new(0);

/// The cluster with Tessera on it.
pub struct Stage {
    pub cluster: Cluster,
    pub tessera: Installation,
    pub options: InstallationOptions,
}

impl Stage {
    async fn set_up() -> Result<Self, Box<dyn std::error::Error>> {
        let options = InstallationOptions {
            values: VALUES.iter().map(|value| (*value).to_owned()).collect(),
            pools: pools(),
            ..InstallationOptions::default()
        };
        let cluster = Cluster::start(ClusterOptions { helm: true, ..ClusterOptions::node_tier(1) }).await?;
        let tessera = Installation::install(&cluster, &options).await.inspect_err(|_| cluster.keep_logs())?;
        Ok(Self { cluster, tessera, options })
    }

    pub fn node(&self) -> &Node {
        self.cluster.node(0)
    }

    /// Runs `gpu-emulator VERB` on the node's machine.
    pub fn emulator(&self, verb: &str, arguments: &[&str]) -> String {
        let machine = installation::machine(self.node()).display().to_string();
        self.tessera.emulator(&[&[verb, &machine], arguments].concat()).unwrap()
    }

    /// Minor numbers of the emulated cards, by device name.
    pub fn minors(&self) -> BTreeMap<String, u64> {
        let machine: Value = serde_json::from_str(&self.emulator("show", &["-o", "json"])).unwrap();
        let cards = machine["machine"]["cards"].as_array().unwrap();
        cards
            .iter()
            .map(|card| {
                let address: tessera_api::PciBusId = card["pci"].as_str().unwrap().parse().unwrap();
                (tessera_api::DeviceName::Card(address).to_string(), card["minor"].as_u64().unwrap())
            })
            .collect()
    }

    /// MIG mode and partitions of each card.
    pub fn mig(&self) -> Vec<Mig> {
        let machine: Value = serde_json::from_str(&self.emulator("show", &["-o", "json"])).unwrap();
        let cards = machine["state"]["cards"].as_array().unwrap();
        cards.iter().map(|card| Mig::deserialize(&card["mig"]).unwrap()).collect()
    }

    /// The node's slices.
    pub async fn slices(&self) -> Vec<ResourceSlice> {
        let slices: Api<ResourceSlice> = Api::all(self.client().await);
        slices.list(&ListParams::default()).await.unwrap().items
    }

    pub async fn client(&self) -> Client {
        self.cluster.client().await.unwrap()
    }

    /// The plugin's only ready pod.
    pub async fn plugin(&self) -> Pod {
        eventually("one plugin pod, ready", async || {
            let pods = self.tessera.plugin_pods(&self.cluster, self.node().name()).await.unwrap();
            let [pod] = <[Pod; 1]>::try_from(pods).ok()?;
            let conditions = pod.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(pod)
        })
        .await
    }

    /// Replaces the plugin's pod: the kubelet waits longer each time before it restarts a killed container, and one
    /// test shall not pay for another's kills.
    pub async fn fresh_plugin(&self) {
        let old = self.plugin().await.metadata;
        self.cluster.delete_pod(installation::NAMESPACE, &old.name.unwrap()).await.unwrap();
        eventually("a new plugin pod", async || (self.plugin().await.metadata.uid != old.uid).then_some(()))
            .await;
    }

    /// Kills the running plugin with SIGKILL.
    pub async fn kill_plugin(&self) {
        let plugin = self.plugin().await;
        let variable = format!("POD_UID={}", plugin.metadata.uid.unwrap());
        let process = eventually("the plugin's process", async || process_with(&variable)).await;
        kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
    }
}

/// The process that runs the plugin and has this variable in its environment.
fn process_with(variable: &str) -> Option<i32> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let program = fs::read(entry.path().join("cmdline")).ok()?;
        let runs = program.split(|byte| *byte == 0).next()?.ends_with(b"kubelet-plugin");
        let has = environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes());
        (runs && has).then_some(process)
    })
}

/// How a card is divided.
#[derive(Clone, Debug, Deserialize)]
pub struct Mig {
    pub enabled: bool,
    pub instances: Vec<Value>,
}

/// A test's namespace on the stage.
pub struct Scene {
    pub stage: &'static Stage,
    pub namespace: String,
}

/// Runs `test` in its own namespace and deletes that afterwards, also after a panic.
pub async fn play<F, W>(name: &'static str, test: F)
where
    F: FnOnce(Scene) -> W,
    W: Future<Output = ()>,
{
    if !skip::node_tier(name) {
        return;
    }
    let stage = STAGE.get_or_try_init(Stage::set_up).await.unwrap_or_else(|error| panic!("{error}"));
    let namespace = format!("scene-{}", SCENES.fetch_add(1, Ordering::Relaxed));
    let scene = Scene { stage, namespace: namespace.clone() };
    in_namespace(&stage.cluster, &namespace, test(scene)).await.unwrap();
}

/// A container that reports what it sees and stays, with these of the pod's claims (`claim` or `claim/request`).
pub fn container(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> = claims
        .iter()
        .map(|claim| match claim.split_once('/') {
            Some((claim, request)) => json!({"name": claim, "request": request}),
            None => json!({"name": claim}),
        })
        .collect();
    let mut container = json!({"name": name, "resources": {"claims": claims}});
    hold_and_view(&mut container);
    container
}

/// A request for `count` whole cards.
pub fn cards(name: &str, count: u32) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": CLASS, "count": count}})
}

/// A request for one MIG partition of a profile, as NVIDIA writes it.
pub fn partition(name: &str, profile: &str) -> Value {
    let expression = format!(r#"device.attributes["gpu.tessera.dev"].profile == "{profile}""#);
    json!({"name": name, "exactly": {"deviceClassName": MIG_CLASS, "selectors": [{"cel": {"expression": expression}}]}})
}

impl Scene {
    /// Creates a template with these requests.
    pub async fn template(&self, name: &str, requests: &[Value]) {
        self.apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"spec": {"devices": {"requests": requests}}},
        }))
        .await;
    }

    /// Creates a claim with these requests.
    pub async fn claim(&self, name: &str, requests: &[Value]) {
        self.apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"devices": {"requests": requests}},
        }))
        .await;
    }

    /// Creates a pod of these containers; `claims` are its `spec.resourceClaims`.
    pub async fn pod(&self, name: &str, containers: &[Value], claims: &[Value]) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": containers, "resourceClaims": claims},
        }))
        .await;
    }

    /// Creates a pod with one container `main` and one claim `card` from the template `template`.
    pub async fn pod_from_template(&self, name: &str, template: &str) {
        let claim = json!({"name": "card", "resourceClaimTemplateName": template});
        self.pod(name, &[container("main", &["card"])], &[claim]).await;
    }

    pub async fn apply(&self, object: Value) {
        self.stage.cluster.apply(&object.to_string()).await.unwrap();
    }

    pub async fn ready(&self, pod: &str) -> Pod {
        self.stage.cluster.wait_for_pod(&self.namespace, pod, PodState::Ready, LIMIT).await.unwrap()
    }

    pub async fn delete_pod(&self, pod: &str) {
        self.stage.cluster.delete_pod(&self.namespace, pod).await.unwrap();
    }

    /// The report of a ready pod's container.
    pub async fn view(&self, pod: &str, container: &str) -> ContainerView {
        ContainerView::of(&self.stage.cluster, &self.namespace, pod, container).await
    }

    pub async fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.stage.client().await, &self.namespace)
    }

    pub async fn claims(&self) -> Api<ResourceClaim> {
        Api::namespaced(self.stage.client().await, &self.namespace)
    }

    /// Waits until the scheduler has found no node for the pod.
    pub async fn unschedulable(&self, pod: &str) {
        let pods = self.pods().await;
        eventually("the pod to be unschedulable", async || {
            let conditions = pods.get(pod).await.unwrap().status?.conditions?;
            conditions
                .iter()
                .any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
                .then_some(())
        })
        .await;
    }

    /// Devices allocated to a claim, by name.
    pub async fn devices(&self, claim: &str) -> Vec<String> {
        let claim = self.claims().await.get(claim).await.unwrap();
        let allocation = claim.status.and_then(|status| status.allocation).and_then(|a| a.devices);
        let results = allocation.and_then(|devices| devices.results).unwrap_or_default();
        results.into_iter().map(|result| result.device).collect()
    }

    /// Minor numbers of the cards allocated to a claim.
    pub async fn minors(&self, claim: &str) -> Vec<u64> {
        let all = self.stage.minors();
        let mut minors: Vec<u64> = self.devices(claim).await.iter().map(|device| all[device]).collect();
        minors.sort_unstable();
        minors
    }

    /// The name of the claim made for `pod` from its template.
    pub async fn claim_of(&self, pod: &str) -> String {
        let pod = self.pods().await.get(pod).await.unwrap();
        let statuses = pod.status.and_then(|status| status.resource_claim_statuses).unwrap();
        statuses[0].resource_claim_name.clone().unwrap()
    }
}
