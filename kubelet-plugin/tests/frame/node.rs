//! A node: an emulated machine, the kubelet's directories, and a Node object in a real API server.

use std::path::{Path, PathBuf};

use k8s_openapi::api::{
    core::v1::Node as NodeObject,
    events::v1::Event,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tessera_harness::{
    Cluster, installation,
    kubelet_stand_in::{Claim, KubeletStandIn, Plugin as Registered},
    shared, workspace,
};
use tokio::sync::OnceCell;

use crate::{
    machine::EmulatedMachine,
    plugin::{LONG, Plugin},
};

pub const DRIVER: &str = "gpu.tessera.dev";
/// The label for pools that select only this node.
pub const POOL_LABEL: &str = "example.com/node";

pub struct Node {
    pub name: String,
    pub client: Client,
    pub machine: EmulatedMachine,
    kubeconfig: PathBuf,
    directory: TempDir,
}

pub async fn cluster() -> &'static Cluster {
    static PROGRAMS: OnceCell<()> = OnceCell::const_new();
    let build = || async {
        tokio::task::spawn_blocking(workspace::build_programs).await.unwrap().unwrap();
    };
    PROGRAMS.get_or_init(build).await;
    shared::scheduler_tier().await.unwrap()
}

impl Node {
    pub async fn new(name: &str, hardware: &str) -> Self {
        Self::of(cluster().await, name, hardware).await
    }

    /// A node of this cluster.
    pub async fn of(cluster: &Cluster, name: &str, hardware: &str) -> Self {
        let kubeconfig = cluster.kubeconfig();
        let file = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        // Not the cluster's own client, whose background task runs in the runtime of another test.
        let client = Client::try_from(config).unwrap();
        let name = format!("{name}-{:08x}", fastrand::u32(..));
        let labels = json!({POOL_LABEL: name});
        let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        Api::<NodeObject>::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let directory = tempfile::Builder::new().prefix("f").rand_bytes(5).tempdir_in("/tmp").unwrap();
        Self { name, client, machine: EmulatedMachine::new(hardware), kubeconfig, directory }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn kubelet_directory(&self) -> PathBuf {
        self.directory().join("k")
    }

    pub fn cdi_directory(&self) -> PathBuf {
        self.directory().join("cdi")
    }

    /// The plugin's command line on this node.
    pub fn arguments(&self) -> Vec<String> {
        let machine = self.machine.root();
        let option = |name: &str, path: &Path| [name.to_owned(), path.display().to_string()];
        [
            ["--node-name".to_owned(), self.name.clone()],
            option("--kubeconfig", &self.kubeconfig),
            option("--kubelet-directory", &self.kubelet_directory()),
            option("--cdi-directory", &self.cdi_directory()),
            option("--driver-root", &machine),
            option("--sysfs-root", &machine.join("sys")),
            option("--proc-root", &machine.join("proc")),
        ]
        .concat()
    }

    /// Makes or changes a GpuPool of this node alone, with this name in front of the node's.
    pub async fn pool(&self, name: &str, spec: Value) {
        self.pool_in(cluster().await, name, spec).await;
    }

    /// [`Node::pool`], in the cluster of this node.
    pub async fn pool_in(&self, cluster: &Cluster, name: &str, mut spec: Value) {
        spec["nodeSelector"] = json!({"matchLabels": {POOL_LABEL: self.name}});
        let pool = json!({
            "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
            "metadata": {"name": self.pool_name(name)}, "spec": spec,
        });
        installation::make_pools(cluster, &[pool.to_string()]).await.unwrap();
    }

    pub fn pool_name(&self, name: &str) -> String {
        format!("{name}-{}", self.name)
    }

    /// Starts an instance.
    pub fn plugin(&self, pod_uid: Option<&str>) -> Plugin {
        let mut arguments = self.arguments();
        arguments.extend(pod_uid.into_iter().flat_map(|uid| ["--pod-uid".to_owned(), uid.to_owned()]));
        Plugin::start(self.directory(), &arguments)
    }

    /// Registers the newest instance with the kubelet's stand-in.
    pub async fn register(&self) -> Registered {
        KubeletStandIn::new(&self.kubelet_directory()).register(DRIVER, LONG).await.unwrap()
    }

    pub async fn slices(&self) -> Vec<ResourceSlice> {
        let parameters = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        Api::all(self.client.clone()).list(&parameters).await.unwrap().items
    }

    /// The names of the published devices, in order.
    pub async fn devices(&self) -> Vec<String> {
        let devices =
            self.slices().await.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        devices.map(|device| device.name).collect()
    }

    /// The devices with a taint, and the reason.
    pub async fn tainted(&self) -> Vec<(String, String)> {
        let devices =
            self.slices().await.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        let taints = devices.flat_map(|device| {
            let name = device.name;
            let taints = device.taints.unwrap_or_default();
            taints.into_iter().map(move |taint| (name.clone(), taint.value.unwrap_or_default()))
        });
        taints.collect()
    }

    /// Waits for an Event of the node.
    pub async fn until_event(&self, reason: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let of_node = ListParams::default().fields(&format!("reason={reason},regarding.name={}", self.name));
        let since = std::time::Instant::now();
        while events.list(&of_node).await.unwrap().items.is_empty() {
            assert!(since.elapsed() < LONG, "no Event {reason}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// A claim with these devices allocated, as by the scheduler.
    pub async fn claim(&self, devices: &[&str]) -> Claim {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), "default");
        let name = format!("claim-{:08x}", fastrand::u32(..));
        let request = json!({"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": devices.len()}});
        let claim = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }));
        let mut claim = claims.create(&PostParams::default(), &claim.unwrap()).await.unwrap();
        let result = |device: &&str| {
            json!({
                "request": "gpus", "driver": DRIVER, "device": device,
                "pool": format!("{DRIVER}/{}", self.name),
            })
        };
        let results: Vec<_> = devices.iter().map(result).collect();
        let status = json!({"allocation": {"devices": {"results": results}}});
        claim.status = serde_json::from_value(status).unwrap();
        let claim = claims.replace_status(&name, &PostParams::default(), &claim).await.unwrap();
        Claim { namespace: "default".to_owned(), name, uid: claim.metadata.uid.unwrap() }
    }

    /// All CDI specs.
    pub fn specs(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.cdi_directory()).into_iter().flatten().flatten();
        let names = files.map(|entry| entry.file_name().into_string().unwrap());
        let names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
        let claims = || names.iter().filter(|name| !name.contains("-metadata_")).cloned();
        let metadata = names.iter().filter(|name| name.contains("-metadata_")).count();
        assert!(claims().count() > 0 || metadata == 0, "what is told of claims is left: {names:?}");
        claims().collect()
    }

    /// All sockets, of both kinds.
    pub fn sockets(&self) -> Vec<String> {
        let directories = ["plugins_registry".to_owned(), format!("plugins/{DRIVER}")];
        let entries = directories.iter().flat_map(|directory| {
            std::fs::read_dir(self.kubelet_directory().join(directory)).into_iter().flatten().flatten()
        });
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".sock") || name.starts_with(".dra")).collect()
    }
}
