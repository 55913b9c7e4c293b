//! One cluster with Tessera under NVIDIA's driver name for all tests of this program, and a namespace for each
//! manifest.

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{Device, ResourceClaim, ResourceSlice},
};
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};
use tessera_harness::{
    Cluster, ClusterOptions, PodState,
    installation::{self, Installation, InstallationOptions},
    scene::{ContainerView, LIMIT, hold_and_view, in_namespace},
    skip,
};
use tokio::sync::OnceCell;

/// Under its name whole cards have an extended resource by default, as NVIDIA's chart has it.
const VALUES: [&str; 3] =
    ["driverName=gpu.nvidia.com", "extendedResourceNames.timeslice=", "sharing.mps.enabled=true"];

/// Tessera's name here.
pub const DRIVER: &str = "gpu.nvidia.com";

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// The cluster with Tessera on it.
pub struct Stage {
    pub cluster: Cluster,
    tessera: Installation,
}

impl Stage {
    async fn set_up() -> Result<Self, Box<dyn std::error::Error>> {
        let options = InstallationOptions {
            hooks: true,
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

    /// What a driver publishes of the node.
    pub async fn slices(&self, driver: &str) -> Vec<ResourceSlice> {
        let slices: Api<ResourceSlice> = Api::all(self.client().await);
        let of_driver = ListParams::default().fields(&format!("spec.driver={driver}"));
        slices.list(&of_driver).await.unwrap().items
    }

    /// All devices that Tessera publishes of the node.
    pub async fn devices(&self) -> Vec<Device> {
        let slices = self.slices(DRIVER).await;
        slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()).collect()
    }

    pub async fn client(&self) -> Client {
        self.cluster.client().await.unwrap()
    }
}

/// A manifest, applied in its own namespace.
pub struct Scene {
    pub stage: &'static Stage,
    pub namespace: String,
}

/// Applies `manifests/<manifest>.yaml` in a namespace of this name and runs `test`.
pub async fn play<F, W>(manifest: &'static str, test: F)
where
    F: FnOnce(Scene) -> W,
    W: Future<Output = ()>,
{
    on_stage(manifest, async move |scene: Scene| {
        scene.apply(manifest).await;
        test(scene).await;
    })
    .await;
}

/// Runs `test` in its own namespace; deletes that afterwards, also after a panic.
pub async fn on_stage<F, W>(namespace: &'static str, test: F)
where
    F: FnOnce(Scene) -> W,
    W: Future<Output = ()>,
{
    if !skip::node_tier(namespace) {
        return;
    }
    let stage = STAGE.get_or_try_init(Stage::set_up).await.unwrap_or_else(|error| panic!("{error}"));
    let scene = Scene { stage, namespace: namespace.to_owned() };
    in_namespace(&stage.cluster, namespace, test(scene)).await.unwrap();
}

/// The documents of a manifest, adapted: containers run the test image, since there is no registry, and pods end at
/// once.
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
            hold_and_view(container);
        }
    }
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

impl Scene {
    /// Applies `manifests/<manifest>.yaml`.
    pub async fn apply(&self, manifest: &str) {
        let arguments = ["apply", "--server-side", "-n", &self.namespace, "-f", "-"];
        self.stage.cluster.kubectl_with_input(&arguments, &documents(manifest)).await.unwrap();
    }

    /// The report of a pod's container, once the pod is ready.
    pub async fn view(&self, pod: &str, container: &str) -> ContainerView {
        let cluster = &self.stage.cluster;
        cluster.wait_for_pod(&self.namespace, pod, PodState::Ready, LIMIT).await.unwrap();
        ContainerView::of(cluster, &self.namespace, pod, container).await
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

    /// The devices allocated to the only claim, as published.
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
