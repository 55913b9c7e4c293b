//! One cluster with Tessera under NVIDIA's name for all tests of this program; a namespace for each manifest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    time::{Duration, Instant},
};

use futures::FutureExt;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{Device, ResourceClaim, ResourceSlice},
};
use kube::{Api, Client, api::ListParams};
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_tests::{
    Cluster, ClusterOptions, PodState, TEST_IMAGE,
    installation::{self, Installation, InstallationOptions},
    skip,
};
use tokio::{sync::OnceCell, time::sleep};

/// Several times what anything here takes on a quiet machine.
pub const LIMIT: Duration = Duration::from_secs(180);

/// NVIDIA's chart gives whole cards their extended resource unasked; ours when told.
const VALUES: [&str; 4] = [
    "driverName=gpu.nvidia.com",
    "extendedResourceNames.enabled=true",
    "extendedResourceNames.timeslice=",
    "sharing.mps.enabled=true",
];

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// The cluster with Tessera on it.
pub struct Stage {
    pub cluster: Cluster,
    tessera: Installation,
}

impl Stage {
    async fn set_up() -> Result<Self, Box<dyn std::error::Error>> {
        let options = InstallationOptions {
            values: VALUES.iter().map(|value| (*value).to_owned()).collect(),
            ..InstallationOptions::default()
        };
        let cluster = Cluster::start(ClusterOptions { helm: true, ..ClusterOptions::node_tier(1) }).await?;
        let tessera = Installation::install(&cluster, &options).await.inspect_err(|_| cluster.keep_logs())?;
        Ok(Self { cluster, tessera })
    }

    /// The state of the emulated cards, by the cards' UUIDs.
    pub fn cards(&self) -> BTreeMap<String, Value> {
        let machine = installation::machine(self.cluster.node(0)).display().to_string();
        let shown = self.tessera.emulator(&["show", &machine, "-o", "json"]).unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let list = |value: &Value| value["cards"].as_array().unwrap().clone();
        let uuids = list(&shown["machine"]).into_iter().map(|card| card["uuid"].as_str().unwrap().to_owned());
        uuids.zip(list(&shown["state"])).collect()
    }

    /// All devices that the node publishes.
    pub async fn devices(&self) -> Vec<Device> {
        let slices: Api<ResourceSlice> = Api::all(self.client().await);
        let slices = slices.list(&ListParams::default()).await.unwrap().items;
        assert!(slices.iter().all(|slice| slice.spec.driver == "gpu.nvidia.com"));
        slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()).collect()
    }

    pub async fn client(&self) -> Client {
        self.cluster.client().await.unwrap()
    }
}

/// A manifest, applied in a namespace of its own.
pub struct Scene {
    pub stage: &'static Stage,
    pub namespace: String,
}

/// Applies `manifests/<manifest>.yaml` and plays `test`; clears it away, also after a panic.
pub async fn play<F, W>(manifest: &'static str, test: F)
where
    F: FnOnce(Scene) -> W,
    W: Future<Output = ()>,
{
    if !skip::node_tier(manifest) {
        return;
    }
    let stage = STAGE.get_or_try_init(Stage::set_up).await.unwrap_or_else(|error| panic!("{error}"));
    let cluster = &stage.cluster;
    cluster.kubectl(&["create", "namespace", manifest]).await.unwrap();
    let documents = documents(manifest);
    cluster
        .kubectl_with_input(&["apply", "--server-side", "-n", manifest, "-f", "-"], &documents)
        .await
        .unwrap();
    let scene = Scene { stage, namespace: manifest.to_owned() };
    let outcome = AssertUnwindSafe(test(scene)).catch_unwind().await;
    if outcome.is_err() {
        cluster.keep_logs();
        for view in [
            ["get", "pods,resourceclaims,events", "-n", manifest, "-o", "wide"].as_slice(),
            &["logs", "-n", installation::NAMESPACE, "-l", installation::PLUGIN_SELECTOR, "--tail", "40"],
        ] {
            let output = cluster.try_kubectl(view).await.map(|output| output.stdout + &output.stderr);
            eprintln!("kubectl {}:\n{}", view.join(" "), output.unwrap_or_default());
        }
    }
    cluster.kubectl(&["delete", "namespace", manifest, "--timeout=90s"]).await.unwrap();
    if let Err(error) = outcome {
        resume_unwind(error);
    }
}

/// The documents of a manifest as they are, but for what the containers run: there is no registry to take their images from.
fn documents(manifest: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/nvidia_manifests/manifests")
        .join(manifest)
        .with_extension("yaml");
    let text = fs::read_to_string(path).unwrap();
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for pod in documents.iter_mut().filter(|document| document["kind"] == "Pod") {
        pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
        for container in pod["spec"]["containers"].as_array_mut().unwrap() {
            container["image"] = json!(TEST_IMAGE);
            container["imagePullPolicy"] = json!("Never");
            container["command"] = json!(["/bin/hold", "view"]);
        }
    }
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "not within {} s: {what}", LIMIT.as_secs());
        sleep(Duration::from_millis(50)).await;
    }
}

/// What a container says of itself (`view` of the test image).
#[derive(Clone, Debug, Deserialize)]
pub struct ContainerView {
    pub environment: BTreeMap<String, String>,
    devices: Vec<DeviceNode>,
}

#[derive(Clone, Debug, Deserialize)]
struct DeviceNode {
    path: String,
}

impl ContainerView {
    /// UUIDs of the cards (`GPU-`) or partitions (`MIG-`) that it was given. As many device nodes of cards must be there as
    /// these lie on, and two capabilities for each partition.
    pub fn uuids(&self, prefix: &str) -> BTreeSet<String> {
        let uuids: BTreeSet<String> =
            self.environment.values().filter(|value| value.starts_with(prefix)).cloned().collect();
        let count = |start: &str| {
            let nodes = self.devices.iter().filter_map(|node| node.path.strip_prefix(start));
            nodes.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())).count()
        };
        if prefix == "GPU-" {
            assert_eq!(count("/dev/nvidia"), uuids.len(), "{self:?}");
        } else {
            assert_eq!(count("/dev/nvidia-caps/nvidia-cap"), 2 * uuids.len(), "{self:?}");
        }
        uuids
    }

    /// The one card that it was given.
    pub fn card(&self) -> String {
        let [uuid] = <[String; 1]>::try_from(Vec::from_iter(self.uuids("GPU-"))).unwrap();
        uuid
    }

    /// The one partition that it was given.
    pub fn partition(&self) -> String {
        let [uuid] = <[String; 1]>::try_from(Vec::from_iter(self.uuids("MIG-"))).unwrap();
        uuid
    }
}

impl Scene {
    /// What a container of a pod says, once the pod is ready.
    pub async fn view(&self, pod: &str, container: &str) -> ContainerView {
        let cluster = &self.stage.cluster;
        cluster.wait_for_pod(&self.namespace, pod, PodState::Ready, LIMIT).await.unwrap();
        eventually("the container's report", async || {
            let log = cluster.logs_of(&self.namespace, pod, Some(container)).await.ok()?;
            log.lines().find_map(|line| serde_json::from_str(line).ok())
        })
        .await
    }

    pub async fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.stage.client().await, &self.namespace)
    }

    /// The only claim in the namespace.
    pub async fn claim(&self) -> ResourceClaim {
        let claims: Api<ResourceClaim> = Api::namespaced(self.stage.client().await, &self.namespace);
        let [claim] = <[_; 1]>::try_from(claims.list(&ListParams::default()).await.unwrap().items).unwrap();
        claim
    }

    /// The devices allocated to the only claim, as they are published.
    pub async fn allocated(&self) -> Vec<Device> {
        let claim = self.claim().await;
        let allocation = claim.status.and_then(|status| status.allocation).and_then(|all| all.devices);
        let published = self.stage.devices().await;
        let results = allocation.and_then(|devices| devices.results).unwrap_or_default();
        let device = |name: &str| published.iter().find(|device| device.name == name).unwrap().clone();
        results.iter().map(|result| device(&result.device)).collect()
    }
}

/// A text attribute of a published device.
pub fn text(device: &Device, attribute: &str) -> String {
    device.attributes.as_ref().unwrap()[attribute].string.clone().unwrap()
}
