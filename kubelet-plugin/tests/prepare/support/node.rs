use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tessera_inventory::Machine;
use tessera_kubelet_plugin::cdi::Roots;
use tessera_kubelet_plugin::journal::FileSystem;
use tessera_kubelet_plugin::prepare::{
    ClaimReference, PrepareError, PrepareObserver, PrepareOptions, PreparedDevice, Preparer,
};
use tessera_nvml::Nvml;
use tokio::sync::watch;

use super::{Api, Cards, Disk, Fault, Seat, Seen};

/// A node: its directories outlive the plugin's instances.
pub struct Node {
    path: PathBuf,
    /// Removes the directory of a node of its own.
    _directory: Option<TempDir>,
    pub api: Api,
    pub cards: Arc<Cards>,
    pub hardware: watch::Sender<Option<Arc<dyn Nvml>>>,
    pub published: watch::Sender<Option<Arc<Machine>>>,
    pub seen: Arc<Seen>,
    /// How long Prepare waits; not at all unless a test says so.
    pub answer_within: Duration,
    pub answer_at_the_latest: Duration,
    pub drain_within: Duration,
}

impl Node {
    pub fn new(cards: u8) -> Self {
        // Thousands of nodes come and go: in memory, where there is such a place, that takes a tenth of the time.
        let memory = Path::new("/dev/shm");
        let directory =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut node = Self::at(directory.path(), cards);
        node._directory = Some(directory);
        node
    }

    /// A node in a directory that someone else removes.
    pub fn at(path: &Path, cards: u8) -> Self {
        let cards = Arc::new(Cards::new(cards, &path.join("driver/proc")));
        let nvml: Arc<dyn Nvml> = cards.clone();
        let node = Self {
            path: path.to_owned(),
            _directory: None,
            api: Api::default(),
            cards,
            hardware: watch::Sender::new(Some(nvml)),
            published: watch::Sender::new(None),
            seen: Arc::default(),
            answer_within: Duration::ZERO,
            answer_at_the_latest: Duration::from_secs(60),
            drain_within: Duration::from_secs(30),
        };
        fs::create_dir_all(node.path().join("kubelet")).unwrap();
        fs::create_dir_all(node.path().join("driver/dev")).unwrap();
        node.boot("boot-1");
        node
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the machine: what lies in memory is gone.
    pub fn boot(&self, id: &str) {
        let directory = self.path().join("driver/proc/sys/kernel/random");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("boot_id"), format!("{id}\n")).unwrap();
        let _ = fs::remove_dir_all(self.path().join("cdi"));
        self.cards.boot();
    }

    /// What the kubelet's checkpoint says.
    pub fn checkpoint(&self, claims: &[&ClaimReference]) {
        let uids: Vec<&str> = claims.iter().map(|claim| claim.uid.as_str()).collect();
        fs::write(self.path().join("kubelet/dra_manager_state"), format!("{{\"Data\":\"{uids:?}\"}}"))
            .unwrap();
    }

    pub fn options(&self, file_system: Arc<dyn FileSystem>) -> PrepareOptions {
        let driver = self.path().join("driver");
        let mut options = PrepareOptions::new("gpu.tessera.dev", "node-a", &self.path().join("kubelet"));
        options.cdi_directory = self.path().join("cdi");
        options.roots = Roots {
            driver: driver.clone(),
            host_driver: driver.clone(),
            dev: driver.clone(),
            sysfs: driver.join("sys"),
            proc: driver.join("proc"),
        };
        options.patience = Duration::from_secs(3);
        options.short_patience = Duration::from_secs(1);
        options.answer_within = self.answer_within;
        options.answer_at_the_latest = self.answer_at_the_latest;
        options.drain_within = self.drain_within;
        options.file_system = file_system;
        options
    }

    /// Starts an instance of the plugin. Its disk does all but sync, which takes most of a test's time.
    pub async fn start(&self) -> Preparer {
        self.try_start(Arc::new(Disk::new(None))).await.unwrap()
    }

    /// Starts an instance whose disk fails as ordered, and so do the cards for it: one count for both.
    pub async fn start_on(&self, fault: Option<Fault>) -> (Result<Preparer, PrepareError>, Arc<Disk>) {
        let disk = Arc::new(Disk::new(fault));
        let cards: Arc<dyn Nvml> = Arc::new(Seat { cards: self.cards.clone(), disk: disk.clone() });
        let (_, hardware) = watch::channel(Some(cards));
        (self.start_with(disk.clone(), hardware).await, disk)
    }

    pub async fn try_start(&self, file_system: Arc<dyn FileSystem>) -> Result<Preparer, PrepareError> {
        self.start_with(file_system, self.hardware.subscribe()).await
    }

    pub async fn start_with(
        &self,
        file_system: Arc<dyn FileSystem>,
        hardware: watch::Receiver<Option<Arc<dyn Nvml>>>,
    ) -> Result<Preparer, PrepareError> {
        let options = self.options(file_system);
        let journal = Arc::new(options.open_journal()?);
        let seen: Arc<dyn PrepareObserver> = self.seen.clone();
        let published = self.published.subscribe();
        Preparer::open(options, journal, self.api.client(), hardware, published, seen).await
    }

    pub fn record_path(&self, claim: &ClaimReference) -> PathBuf {
        self.path().join("kubelet/plugins/gpu.tessera.dev/journal/claims").join(format!("{}.json", claim.uid))
    }

    pub fn spec_path(&self, claim: &ClaimReference) -> PathBuf {
        self.path().join("cdi").join(format!("gpu.tessera.dev-claim_{}.json", claim.uid))
    }

    pub fn record(&self, claim: &ClaimReference) -> Value {
        serde_json::from_slice(&fs::read(self.record_path(claim)).unwrap()).unwrap()
    }

    pub fn spec(&self, claim: &ClaimReference) -> Value {
        serde_json::from_slice(&fs::read(self.spec_path(claim)).unwrap()).unwrap()
    }

    /// The claims with a complete record of this boot, and their devices. Fails where the disk says anything that a
    /// settled node must not: intents, leftovers, specs without record, records without spec, a card of two claims.
    pub fn settled(&self) -> BTreeMap<String, BTreeSet<String>> {
        let claims = self.path().join("kubelet/plugins/gpu.tessera.dev/journal/claims");
        let boot = fs::read_to_string(self.path().join("driver/proc/sys/kernel/random/boot_id")).unwrap();
        let mut recorded = BTreeMap::new();
        let mut held = BTreeSet::new();
        for name in names(&claims) {
            let uid = name.strip_suffix(".json").unwrap_or_else(|| panic!("left behind: {name}")).to_owned();
            let record: Value = serde_json::from_slice(&fs::read(claims.join(&name)).unwrap()).unwrap();
            assert_eq!(record["stage"], "complete", "{uid}");
            assert_eq!(record["bootId"], boot.trim(), "{uid}");
            let mut devices = BTreeSet::new();
            for device in record["devices"].as_array().unwrap() {
                let name = device["device"].as_str().unwrap().to_owned();
                if device["adminAccess"] != true {
                    let place = &device["partition"]["placement"];
                    let slices = match (place["start"].as_u64(), place["size"].as_u64()) {
                        (Some(start), Some(size)) => start..start + size,
                        _ => 0..8,
                    };
                    let card = device["card"].as_str().unwrap();
                    for slice in slices {
                        assert!(held.insert((card.to_owned(), slice)), "{name} is held twice");
                    }
                }
                devices.insert(name);
            }
            recorded.insert(uid, devices);
        }
        self.hardware_agrees(&claims);
        let specs: BTreeSet<String> = names(&self.path().join("cdi")).into_iter().collect();
        let expected: BTreeSet<String> =
            recorded.keys().map(|uid| format!("gpu.tessera.dev-claim_{uid}.json")).collect();
        assert_eq!(specs, expected, "CDI specs and records differ");
        recorded
    }
}

impl Node {
    /// Fails where hardware records, instances on the cards and complete claims say different things, or where the mode
    /// of a card is neither its administrator's nor needed.
    fn hardware_agrees(&self, claims: &Path) {
        let directory = self.path().join("kubelet/plugins/gpu.tessera.dev/journal/hardware");
        let mut needed = BTreeSet::new();
        let mut used = BTreeSet::new();
        for name in names(claims) {
            let record: Value = serde_json::from_slice(&fs::read(claims.join(&name)).unwrap()).unwrap();
            for device in record["devices"].as_array().unwrap() {
                let hardware = device["hardware"].as_array().cloned().unwrap_or_default();
                needed.extend(hardware.iter().map(|id| id.as_str().unwrap().to_owned()));
                if !hardware.is_empty() && device["partition"].is_object() {
                    used.insert(device["partition"]["instances"]["uuid"].as_str().unwrap().to_owned());
                }
            }
        }
        let mut recorded = BTreeSet::new();
        for name in names(&directory) {
            let id = name.strip_suffix(".json").unwrap_or_else(|| panic!("left behind: {name}")).to_owned();
            let record: Value = serde_json::from_slice(&fs::read(directory.join(&name)).unwrap()).unwrap();
            assert_eq!(record["stage"], "complete", "{id}");
            recorded.insert(id);
        }
        assert_eq!(recorded, needed, "hardware records and what claims refer to differ");
        assert_eq!(self.cards.own_uuids(), used, "what is on the cards and what claims use differ");
        let switched: BTreeSet<String> = recorded.into_iter().filter(|id| id.ends_with("-mode")).collect();
        assert_eq!(self.cards.switched(), switched, "MIG modes that are not the administrator's");
    }
}

/// A claim `ns/<name>` with a UID made from its name.
pub fn claim(name: &str) -> ClaimReference {
    ClaimReference { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
}

/// Names in a directory, sorted; none where there is no directory.
pub fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The one answer of a call.
pub async fn prepare(
    preparer: &Preparer,
    claim: &ClaimReference,
) -> Result<Vec<PreparedDevice>, PrepareError> {
    let mut answers = preparer.prepare(vec![claim.clone()]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(&claim.uid).unwrap()
}

/// The one answer of a call.
pub async fn unprepare(preparer: &Preparer, claim: &ClaimReference) -> Result<(), PrepareError> {
    let mut answers = preparer.unprepare(vec![claim.clone()]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(&claim.uid).unwrap()
}
