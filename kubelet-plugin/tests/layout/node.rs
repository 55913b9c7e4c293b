//! A node with emulated cards and a running layout keeper.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tessera_api::{GpuPoolSpec, PciBusId};
use tessera_inventory::Machine;
use tessera_journal::{BootId, Journal, LocalFileSystem};
use tessera_kubelet_plugin::discovery::{self, DiscoveryOptions, OwnPartitions};
use tessera_kubelet_plugin::gpu_pools::{Known, KnownPool, Resolution, resolve};
use tessera_kubelet_plugin::layout::{
    CardHold, CardHolder, CardStatus, LayoutKeeper, LayoutPace, LayoutState, LayoutStatus,
};
use tessera_kubelet_plugin::run::metrics::Metrics;
use tessera_nvml::{Library, Nvml};
use tessera_publish::{PublishStatus, Role};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::machine::EmulatedMachine;

/// Longer than anything here takes; a test waiting this long fails.
const PATIENCE: Duration = Duration::from_secs(120);

pub const LABEL: &str = "nvidia.com/mig.config";

/// A machine, and the parts of the plugin needed for layouts.
pub struct Node {
    pub machine: Arc<EmulatedMachine>,
    pub library: Library,
    /// The cards, ordered by index.
    pub cards: Vec<PciBusId>,
    pub metrics: Metrics,
    pub claims: Claims,
    locks: Locks,
    pub api: Api,
    pub status: watch::Receiver<LayoutStatus>,
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    pub role: watch::Sender<PublishStatus>,
    file: PathBuf,
    state: Arc<tempfile::TempDir>,
    _hardware: watch::Sender<Option<Arc<dyn Nvml>>>,
    _stop: DropGuard,
}

/// The claims holding any part of a card.
pub type Claims = Arc<Mutex<BTreeMap<PciBusId, Vec<String>>>>;

#[derive(Clone)]
struct Holder {
    journal: Arc<Journal>,
    claims: Claims,
    locks: Locks,
}

/// The card locks. They outlive an instance still at work while the next one starts.
type Locks = Arc<Mutex<BTreeMap<PciBusId, Arc<tokio::sync::Mutex<()>>>>>;

impl CardHolder for Holder {
    type Guard = tokio::sync::OwnedMutexGuard<()>;

    async fn hold(&self, card: PciBusId) -> Result<CardHold<Self::Guard>, String> {
        let lock = self.locks.lock().unwrap().entry(card).or_default().clone();
        let guard = lock.lock_owned().await;
        let claims = self.claims.lock().unwrap().get(&card).cloned().unwrap_or_default();
        Ok(CardHold { claims, guard })
    }

    fn journal(&self) -> Arc<Journal> {
        self.journal.clone()
    }
}

/// An API server accepting Events.
#[derive(Clone, Default)]
pub struct Api {
    /// Value of the node's label.
    pub label: watch::Sender<Option<String>>,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let body = request.into_body().collect_bytes().await.unwrap();
        let event: Value = serde_json::from_slice(&body).unwrap();
        self.events.lock().unwrap().push(event.clone());
        Response::new(Body::from(event.to_string().into_bytes()))
    }

    /// Reasons and notes of all Events so far.
    pub fn events(&self) -> Vec<(String, String)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let events = self.events.lock().unwrap();
        events.iter().map(|event| (text(event, "reason"), text(event, "note"))).collect()
    }
}

/// Resolves a single pool for all cards, with the node's changing label.
async fn follow(
    spec: GpuPoolSpec,
    label: watch::Sender<Option<String>>,
    mut machines: watch::Receiver<Option<Arc<Machine>>>,
    resolution: watch::Sender<Option<Arc<Resolution>>>,
) {
    let mut label = label.subscribe();
    let pool = KnownPool { spec: Some(spec), ..KnownPool::default() };
    loop {
        let labels =
            label.borrow_and_update().iter().map(|value| (LABEL.to_owned(), value.clone())).collect();
        let pools = Some([("all".to_owned(), pool.clone())].into());
        let kubernetes = Some("v1.37.2".to_owned());
        let known = Known { labels: Some(labels), pools, kubernetes, ..Known::default() };
        let machine = machines.borrow_and_update().clone();
        if let Some(machine) = machine {
            resolution.send_replace(resolve("gpu.tessera.dev", &known, &machine, true).map(Arc::new));
        }
        tokio::select! {
            Ok(()) = label.changed() => {}
            changed = machines.changed() => if changed.is_err() { return },
        }
    }
}

impl Node {
    /// A node without earlier publication, with this file and the layout name in the GPU pool of all cards.
    pub fn start(hardware: &str, file: &str, layout: &str) -> Self {
        Self::prepared(hardware, file, Some(layout), |_| {})
    }

    /// Like [`Node::start`], on a machine prepared by a function.
    pub fn prepared(
        hardware: &str,
        file: &str,
        layout: Option<&str>,
        before: impl FnOnce(&EmulatedMachine),
    ) -> Self {
        let machine = Arc::new(EmulatedMachine::new(hardware));
        before(&machine);
        let state = Arc::new(tempfile::tempdir().unwrap());
        let path = state.path().join("layouts.yaml");
        std::fs::write(&path, file).unwrap();
        Self::run(machine, state, path, layout, true, Claims::default(), Locks::default(), Api::default())
    }

    /// Stops the plugin at once and starts it again, with the layout `name`. The publication stays.
    pub fn restart(self, name: Option<&str>) -> Self {
        let Node { machine, state, file, claims, locks, api, _stop, .. } = self;
        drop(_stop);
        Self::run(machine, state, file, name, false, claims, locks, api)
    }

    #[expect(clippy::too_many_arguments, reason = "what outlives an instance, one by one")]
    fn run(
        machine: Arc<EmulatedMachine>,
        state: Arc<tempfile::TempDir>,
        file: PathBuf,
        layout: Option<&str>,
        fresh: bool,
        claims: Claims,
        locks: Locks,
        api: Api,
    ) -> Self {
        let library = Library::open_below(&machine.root()).unwrap();
        let cards = library.addresses().unwrap().into_iter().map(Result::unwrap).collect();
        let files = Arc::new(LocalFileSystem);
        let boot = BootId::read(&*files, &machine.root().join("proc")).unwrap();
        let journal = Arc::new(Journal::open(files, state.path().join("journal"), boot).unwrap());
        let (hardware_sender, hardware) = watch::channel(Some(Arc::new(library.clone()) as Arc<dyn Nvml>));
        let (_, own) = watch::channel(Some(journal.clone() as Arc<dyn OwnPartitions>));
        let (machine_sender, machines) = watch::channel(None);
        let discovery = DiscoveryOptions {
            interval: Duration::from_millis(200),
            ..DiscoveryOptions::new(machine.root().join("sys"))
        };
        let look_again = discovery.look_again.clone();
        let stop = CancellationToken::new();
        tokio::spawn(discovery::run(hardware.clone(), own, discovery, machine_sender, stop.clone()));
        let offer = json!({"layout": layout, "layoutFromNodeLabel": LABEL});
        let spec = GpuPoolSpec { offer: serde_json::from_value(offer).unwrap(), ..GpuPoolSpec::default() };
        let (resolution_sender, resolution) = watch::channel(None);
        tokio::spawn(follow(spec, api.label.clone(), machines.clone(), resolution_sender));
        let (status_sender, status) = watch::channel(LayoutStatus::default());
        let publishing = PublishStatus { role: Role::Publishing, ..PublishStatus::default() };
        let (role, published) = watch::channel(publishing);
        let metrics = Metrics::new();
        let keeper = LayoutKeeper {
            file: file.clone(),
            resolution,
            node_name: "node-a".to_owned(),
            driver_name: "gpu.tessera.dev".to_owned(),
            client: api.client(),
            hardware,
            machines: machines.clone(),
            look_again,
            holder: Holder { journal, claims: claims.clone(), locks: locks.clone() },
            status: status_sender,
            published,
            metrics: metrics.layout.clone(),
            pace: LayoutPace {
                interval: Duration::from_millis(100),
                retry: Duration::from_millis(100),
                grace: Duration::from_millis(300),
            },
            fresh,
        };
        tokio::spawn(keeper.run(stop.clone()));
        Node {
            machine,
            library,
            cards,
            metrics,
            claims,
            locks,
            api,
            status,
            machines,
            role,
            file,
            state,
            _hardware: hardware_sender,
            _stop: stop.drop_guard(),
        }
    }

    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// Replaces the file atomically, like an update of a ConfigMap.
    pub fn write(&self, file: &str) {
        let next = self.state.path().join("next.yaml");
        std::fs::write(&next, file).unwrap();
        std::fs::rename(next, self.file()).unwrap();
    }

    /// Waits until the first card's layout is in this state.
    pub async fn until(&mut self, layout: &str, state: LayoutState) -> CardStatus {
        let card = self.cards[0];
        let is_so = |status: &LayoutStatus| {
            status.cards.get(&card).is_some_and(|card| card.layout == layout && card.state == state)
        };
        let found = tokio::time::timeout(PATIENCE, self.status.wait_for(is_so)).await.is_ok();
        let status = self.status.borrow().clone();
        assert!(found, "never {layout} {state:?}: {status:?}");
        status.cards[&card].clone()
    }

    /// Waits until every card's layout is in this state.
    pub async fn until_all(&mut self, layout: &str, state: LayoutState) {
        let count = self.cards.len();
        let is_so = |status: &LayoutStatus| {
            let cards = status.cards.values().filter(|card| card.layout == layout && card.state == state);
            cards.count() == count
        };
        if tokio::time::timeout(PATIENCE, self.status.wait_for(is_so)).await.is_err() {
            panic!("never all {layout} {state:?}: {:?}", *self.status.borrow());
        }
    }

    /// Name and first memory slice of every partition on a card in the driver, by start. An incomplete partition
    /// is described in full instead of its name.
    pub fn partitions(&self, index: usize) -> Vec<(String, u32)> {
        let profiles = self.library.gpu_instance_profiles(self.cards[index]).unwrap().unwrap();
        let mut found: Vec<(String, u32)> = Vec::new();
        for instance in self.library.gpu_instances(self.cards[index]).unwrap() {
            let profile = profiles.iter().find(|profile| profile.id == instance.profile_id).unwrap();
            let is_complete = match &instance.compute_instances[..] {
                [compute] => compute.placement.size == profile.compute_slices && compute.uuid.is_some(),
                _ => false,
            };
            let name = if is_complete { profile.name.clone() } else { format!("{instance:?}") };
            found.push((name, instance.placement.start));
        }
        found.sort_by_key(|(_, start)| *start);
        found
    }

    /// Whether MIG mode is on.
    pub fn mode(&self, index: usize) -> bool {
        self.library.identify(self.cards[index]).unwrap().mig_mode.unwrap()
    }

    /// Makes a partition by hand, as an administrator.
    pub fn partition_by_hand(&self, index: usize, profile: &str, start: u32) {
        let card = self.cards[index];
        self.library.set_mig_mode(card, true).unwrap();
        let profiles = self.library.gpu_instance_profiles(card).unwrap().unwrap();
        let profile = profiles.into_iter().find(|offered| offered.name == profile).unwrap();
        let placement = *profile.placements.iter().find(|placement| placement.start == start).unwrap();
        let instance = self.library.create_gpu_instance(card, profile.id, placement).unwrap();
        let widths = self.library.compute_instance_profiles(card, instance.id).unwrap();
        self.library.create_compute_instance(card, instance.id, widths.last().unwrap().id).unwrap();
    }

    /// File names of the journal's hardware records.
    pub fn records(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.state.path().join("journal/hardware")).unwrap();
        let mut names: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A layout file with a single configuration, `one`, for all cards.
pub fn one(mig_devices: &str) -> String {
    format!(
        "version: v1\nmig-configs:\n  one:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {mig_devices}\n"
    )
}
