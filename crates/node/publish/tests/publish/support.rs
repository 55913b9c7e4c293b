//! One control plane for all tests of this program, and a node of its own for each.

use std::{collections::BTreeMap, future::Future, path::Path, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, ResourceSlice},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use tessera_harness::{Cluster, host::host_executable, shared, workspace};
use tessera_inventory::{
    Pool,
    pool::{Contents, Slice},
};
use tessera_kube_util::client;
use tessera_publish::{Desired, PublishOptions, PublishStatus, Publisher};
use tokio::{
    sync::{OnceCell, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub const DRIVER: &str = "gpu.tessera.dev";
/// For things that happen sooner or later on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

/// Configuration of an administrator of the cluster that the tests of this program share.
pub async fn administrator() -> Config {
    static PROGRAMS: OnceCell<()> = OnceCell::const_new();
    let build = || async {
        // The cluster's own program: `cargo test` of this package alone does not build it.
        if host_executable().is_err() {
            tokio::task::spawn_blocking(workspace::build_programs).await.expect("no panic").expect("built");
        }
    };
    PROGRAMS.get_or_init(build).await;
    administrator_of(shared::scheduler_tier().await.expect("a cluster")).await
}

pub async fn administrator_of(cluster: &Cluster) -> Config {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("readable");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("valid")
}

/// A node without kubelet, and the directory that instances of the plugin on it share.
pub struct TestNode {
    pub name: String,
    pub client: Client,
    pub directory: TempDir,
}

impl TestNode {
    /// Each test has its own node in the shared cluster, so that tests don't see each other's slices.
    pub async fn new(name: &str) -> Self {
        Self::in_cluster(administrator().await, name).await
    }

    pub async fn in_cluster(config: Config, name: &str) -> Self {
        let name = format!("{name}-{:08x}", fastrand::u32(..));
        let client = Client::try_from(config).expect("a client");
        let node = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).expect("a node");
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.expect("created");
        Self { name, client, directory: tempfile::tempdir().expect("a directory") }
    }

    pub fn api(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// The node's slices of all drivers, by name.
    pub async fn slices(&self) -> Vec<ResourceSlice> {
        let parameters = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        self.api().list(&parameters).await.expect("listed").items
    }

    /// What a starting kubelet does.
    pub async fn wipe(&self) {
        let parameters = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        self.api().delete_collection(&DeleteParams::default(), &parameters).await.expect("deleted");
    }

    pub fn slice_name(&self, suffix: &str) -> String {
        format!("{}-{DRIVER}-{suffix}", self.name)
    }

    /// An instance of the plugin that talks to the API server directly.
    pub async fn publisher(&self, pool: Option<Pool>) -> Running {
        let client = client::connect(administrator().await).expect("a client");
        self.publisher_through(client, pool)
    }

    pub fn publisher_through(&self, client: Client, pool: Option<Pool>) -> Running {
        self.start(client, pool, "instance")
    }

    pub fn start(&self, client: Client, pool: Option<Pool>, instance: &str) -> Running {
        start(client, self.directory.path(), &self.name, pool, instance)
    }
}

pub fn start(
    client: Client,
    lock_directory: &Path,
    node_name: &str,
    pool: Option<Pool>,
    instance: &str,
) -> Running {
    let publisher = Publisher::new(
        client,
        PublishOptions {
            driver_name: DRIVER.to_owned(),
            node_name: node_name.to_owned(),
            lock_directory: lock_directory.to_owned(),
            instance: instance.to_owned(),
        },
    )
    .probe_every(Duration::from_secs(1));
    let (pools, receiver) = watch::channel(pool.as_ref().map(wanted));
    let (status, stop) = (publisher.status(), CancellationToken::new());
    let task = tokio::spawn(publisher.run(receiver, stop.clone()));
    Running { pools, status, stop, task: Some(task) }
}

/// `pool` as the publisher takes it.
fn wanted(pool: &Pool) -> Arc<Desired> {
    Arc::new(Desired { slices: pool.slices.clone(), annotations: BTreeMap::new() })
}

/// A running publisher; stopped when dropped.
pub struct Running {
    pub pools: watch::Sender<Option<Arc<Desired>>>,
    pub status: watch::Receiver<PublishStatus>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Running {
    pub fn offer(&self, pool: Pool) {
        self.pools.send_replace(Some(wanted(&pool)));
    }

    /// Waits for a status that satisfies `condition`.
    pub async fn until(&self, what: &str, condition: impl Fn(&PublishStatus) -> bool) -> PublishStatus {
        let mut status = self.status.clone();
        match tokio::time::timeout(LONG, status.wait_for(|status| condition(status))).await {
            Ok(status) => status.expect("running").clone(),
            Err(_) => panic!("never {what}; the status is {:?}", self.status.borrow()),
        }
    }

    pub async fn in_sync(&self) -> PublishStatus {
        self.until("in sync", |status| status.in_sync).await
    }

    /// As SIGTERM does.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let task = self.task.take().expect("running");
        tokio::time::timeout(LONG, task).await.expect("in time").expect("no panic");
    }

    /// As kill -9 does: the task is gone at its next await, and its locks with it.
    pub async fn kill(mut self) {
        let task = self.task.take().expect("running");
        task.abort();
        let _ = task.await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until `question` is answered.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut question: impl FnMut() -> F) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = question().await {
            return answer;
        }
        assert!(begin.elapsed() < LONG, "never {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whole cards as a pool publishes them: counter sets, then devices that draw on them. `mark` tells pools apart.
pub fn cards(count: usize, mark: &str) -> Pool {
    let counter = || [("memory-slice-0".to_owned(), Counter { value: Quantity("1".to_owned()) })].into();
    let name = |card: usize| format!("gpu-{card:02x}-00");
    let sets: Vec<CounterSet> =
        (0..count).map(|card| CounterSet { name: name(card), counters: counter() }).collect();
    let device = |card: usize| {
        let text =
            |text: &str| DeviceAttribute { string: Some(text.to_owned()), ..DeviceAttribute::default() };
        Device {
            name: name(card),
            attributes: Some([("type".to_owned(), text("gpu")), ("mark".to_owned(), text(mark))].into()),
            consumes_counters: Some(vec![DeviceCounterConsumption {
                counter_set: name(card),
                counters: counter(),
                compatibility_groups: None,
            }]),
            ..Device::default()
        }
    };
    let mut slices: Vec<Slice> = sets
        .chunks(8)
        .enumerate()
        .map(|(index, sets)| slice(&format!("0-counters-{index:04}"), Contents::of_shared_counters(sets)))
        .collect();
    let devices: Vec<Device> = (0..count).map(device).collect();
    slices.push(slice("1-cards-0000", Contents::of_devices(&devices)));
    Pool { slices, ..Pool::default() }
}

pub fn slice(name_suffix: &str, contents: Contents) -> Slice {
    Slice { name_suffix: name_suffix.to_owned(), contents }
}

/// Changes the devices of the last slice of `pool`.
pub fn change_devices(pool: &mut Pool, change: impl FnOnce(&mut Vec<Device>)) {
    let contents = &mut pool.slices.last_mut().expect("slices").contents;
    let mut devices = contents.devices();
    change(&mut devices);
    *contents = Contents::of_devices(&devices);
}

/// The marks of all published devices, in order.
pub fn marks(slices: &[ResourceSlice]) -> Vec<String> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let mark = |device: &Device| device.attributes.as_ref()?.get("mark")?.string.clone();
    devices.filter_map(mark).collect()
}
