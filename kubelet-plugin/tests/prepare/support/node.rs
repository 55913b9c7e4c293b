//! The node of these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tessera_api::Offer;
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_inventory::Machine;
use tessera_journal::FileSystem;
use tessera_kubelet_plugin::cdi::Roots;
use tessera_kubelet_plugin::gpu_pools::Resolution;
use tessera_kubelet_plugin::prepare::{
    DriverFilesState, PrepareError, PrepareObserver, PrepareOptions, Preparer,
};
use tessera_nvml::{ComputeMode, Nvml};
use tokio::sync::{Notify, watch};

use super::{Api, Cards, Disk, FakeMpsHost, Fault, Loss, Seat, Seen, Stable, real_uuid};

/// A node: its directories outlive the plugin's instances.
pub struct Node {
    path: PathBuf,
    /// Removes the directory, unless owned by somebody else.
    _directory: Option<TempDir>,
    pub api: Api,
    pub cards: Arc<Cards>,
    pub hardware: watch::Sender<Option<Arc<dyn Nvml>>>,
    pub published: watch::Sender<Option<Arc<Machine>>>,
    pub seen: Arc<Seen>,
    /// The offer of the cards.
    pub resolution: watch::Sender<Option<Arc<Resolution>>>,
    /// The fake mps-host, if there is one.
    pub mps: Option<FakeMpsHost>,
    /// How long Prepare waits; not at all by default.
    pub answer_within: Duration,
    pub answer_at_the_latest: Duration,
    pub driver_answers_within: Duration,
    pub drain_within: Duration,
    /// NVIDIA's program for hooks, and its disabled hooks.
    pub cdi_hook: Option<PathBuf>,
    pub disabled_hooks: Vec<String>,
    /// Whether the node has the files of its driver.
    pub driver_files: watch::Sender<DriverFilesState>,
    /// Makes discovery look again.
    pub look_again: Arc<Notify>,
    /// Shortest and longest pause between two attempts.
    pub retry_pauses: (Duration, Duration),
    /// Waits longer than this are reported to users.
    pub tell_after: Duration,
    /// Everything safe on disk, of all instances of the plugin.
    stable: Arc<Mutex<Stable>>,
}

impl Node {
    /// The offer of all cards from now on.
    pub fn offer(&self, fields: &serde_json::Value) {
        let offers = Offer::decode(fields).unwrap().into();
        self.resolution.send_replace(Some(Arc::new(Resolution { offers, ..Resolution::default() })));
    }

    pub fn new(cards: u8) -> Self {
        // In memory if possible, in a tenth of the time: there are thousands of nodes.
        let memory = Path::new("/dev/shm");
        let directory =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut node = Self::at(directory.path(), cards);
        node._directory = Some(directory);
        node
    }

    /// A node whose cards can be shared: with mps-host, and with the driver's tool for time-slices.
    pub fn sharing(cards: u8) -> Self {
        let mut node = Self::new(cards);
        node.cards.real_uuids();
        fs::create_dir_all(node.path().join("mps")).unwrap();
        node.mps = Some(FakeMpsHost::start(&node.path().join("mps"), node.cards.clone()));
        let programs = node.path().join("driver/usr/bin");
        fs::create_dir_all(&programs).unwrap();
        fs::create_dir_all(node.path().join("driver/slices")).unwrap();
        // Scripts may not be executable in the node's directory, but a link to one elsewhere is.
        std::os::unix::fs::symlink(slice_tool(), programs.join("nvidia-smi")).unwrap();
        node
    }

    /// The time-slice of a card, as a number of the driver's tool.
    pub fn time_slice(&self, card: u8) -> u32 {
        let text = fs::read_to_string(self.path().join("driver/slices").join(real_uuid(card)));
        text.map_or(0, |text| text.trim().parse().unwrap())
    }

    /// A node in a directory removed by the caller.
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
            resolution: watch::Sender::new(None),
            mps: None,
            answer_within: Duration::ZERO,
            answer_at_the_latest: Duration::from_secs(60),
            driver_answers_within: Duration::from_secs(60),
            drain_within: Duration::from_secs(30),
            cdi_hook: None,
            driver_files: watch::Sender::default(),
            disabled_hooks: Vec::new(),
            look_again: Arc::default(),
            retry_pauses: (Duration::from_millis(100), Duration::from_secs(2)),
            tell_after: Duration::from_secs(1),
            stable: Arc::default(),
        };
        fs::create_dir_all(node.path().join("kubelet")).unwrap();
        fs::create_dir_all(node.path().join("driver/dev")).unwrap();
        fs::create_dir_all(node.path().join("driver/usr/lib64")).unwrap();
        fs::write(node.path().join("driver/usr/lib64/libcuda.so.580.95.05"), "").unwrap();
        node.boot("boot-1");
        node
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the machine: everything in memory is gone.
    pub fn boot(&self, id: &str) {
        let directory = self.path().join("driver/proc/sys/kernel/random");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("boot_id"), format!("{id}\n")).unwrap();
        self.stable.lock().unwrap().forget(&self.path().join("cdi"));
        let _ = fs::remove_dir_all(self.path().join("cdi"));
        self.cards.boot();
        if let Some(mps) = &self.mps {
            mps.boot();
        }
        for name in names(&self.path().join("driver/slices")) {
            fs::remove_file(self.path().join("driver/slices").join(name)).unwrap();
        }
    }

    /// The machine loses power. The rest on the disk must describe all changes on cards, whatever a later start
    /// makes of the rest. Exception: a file system may have lost the final replacement of an intent, which need not be there.
    pub fn lose_power(&self, loss: Loss) {
        let mut stable = self.stable.lock().unwrap();
        stable.forget(&self.path().join("cdi"));
        stable.lose_power(loss);
        if loss == Loss::Names {
            self.changes_are_told();
        }
    }

    /// Writes the kubelet's checkpoint with these claims.
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
            driver_paths: Vec::new(),
            host_driver: driver.clone(),
            dev: driver.clone(),
            sysfs: driver.join("sys"),
            proc: driver.join("proc"),
        };
        options.patience = Duration::from_secs(3);
        options.short_patience = Duration::from_secs(1);
        options.answer_within = self.answer_within;
        options.answer_at_the_latest = self.answer_at_the_latest;
        options.driver_answers_within = self.driver_answers_within;
        options.drain_within = self.drain_within;
        options.retry_pauses = self.retry_pauses;
        options.tell_after = self.tell_after;
        options.driver_files = self.driver_files.clone();
        options.look_again = self.look_again.clone();
        options.cdi_hook.clone_from(&self.cdi_hook);
        options.disabled_hooks.clone_from(&self.disabled_hooks);
        options.hook_directory = self.path().join("hooks/gpu.tessera.dev");
        options.mps_directory = self.path().join("mps");
        options.resolution = self.resolution.subscribe();
        options.file_system = file_system;
        options
    }

    /// Starts an instance of the plugin. Its disk skips syncs, which would take most of a test's time.
    pub async fn start(&self) -> Preparer {
        if let Some(mps) = &self.mps {
            mps.set_disk(None);
        }
        self.try_start(Arc::new(Disk::new(None, self.stable.clone()))).await.unwrap()
    }

    /// Starts an instance whose disk fails as ordered, and whose cards fail too: both count as one sequence of
    /// steps.
    pub async fn start_on(&self, fault: Option<Fault>) -> (Result<Preparer, PrepareError>, Arc<Disk>) {
        let disk = Arc::new(Disk::new(fault, self.stable.clone()));
        let cards: Arc<dyn Nvml> = Arc::new(Seat { cards: self.cards.clone(), disk: disk.clone() });
        let (_, hardware) = watch::channel(Some(cards));
        if let Some(mps) = &self.mps {
            mps.set_disk(Some(disk.clone()));
        }
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

    /// The claims with a complete record of this boot, and their devices. Fails if the disk has anything not
    /// allowed on a settled node: intents, leftovers, specs without record, records without spec, a card of two
    /// claims.
    pub fn settled(&self) -> BTreeMap<String, BTreeSet<String>> {
        let claims = self.path().join("kubelet/plugins/gpu.tessera.dev/journal/claims");
        let boot = fs::read_to_string(self.path().join("driver/proc/sys/kernel/random/boot_id")).unwrap();
        let (mut recorded, mut expected, mut metadata) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut held = BTreeMap::new();
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
                        // Several claims may hold shares of one device.
                        let earlier = held.insert((card.to_owned(), slice), name.clone());
                        let is_shared = device["shareId"].is_string() && earlier.as_ref() == Some(&name);
                        assert!(earlier.is_none() || is_shared, "{name} is held twice");
                    }
                }
                devices.insert(name);
            }
            expected.insert(format!("gpu.tessera.dev-claim_{uid}.json"));
            if record["metadata"].is_object() {
                expected.insert(format!("gpu.tessera.dev-metadata_{uid}.json"));
                let requests = record["devices"].as_array().unwrap().iter().map(|device| &device["request"]);
                metadata.extend(requests.map(|request| format!("{uid}_{}.json", request.as_str().unwrap())));
            }
            recorded.insert(uid, devices);
        }
        self.hardware_agrees(&claims);
        let specs: BTreeSet<String> = names(&self.path().join("cdi")).into_iter().collect();
        assert_eq!(specs, expected, "CDI specs and records differ");
        let files = self.path().join("kubelet/plugins/gpu.tessera.dev/device-metadata");
        let files: BTreeSet<String> = names(&files).into_iter().collect();
        assert_eq!(files, metadata, "metadata and records differ");
        recorded
    }
}

impl Node {
    /// Fails if something was changed on a card without a readable record.
    fn changes_are_told(&self) {
        let journal = self.path().join("kubelet/plugins/gpu.tessera.dev/journal");
        let read = |kind: &str| -> Vec<Value> {
            let directory = journal.join(kind);
            let texts = names(&directory).into_iter().filter(|name| !name.starts_with('.'));
            texts
                .filter_map(|name| serde_json::from_slice(&fs::read(directory.join(name)).unwrap()).ok())
                .collect()
        };
        let hardware = read("hardware");
        for (card, profile, start) in self.cards.instances().1 {
            let is_it = |record: &Value| {
                let change = &record["change"];
                record["card"] == format!("0000:{:02x}:00.0", card + 1)
                    && change["profileId"] == profile
                    && change["placement"]["start"] == start
            };
            assert!(
                hardware.iter().any(is_it),
                "no record of profile {profile} at {start} of card {card}: {hardware:?}"
            );
        }
        for id in self.cards.switched() {
            assert!(hardware.iter().any(|record| record["id"] == id), "no record {id}");
        }
        for (uuid, _) in self.mps.iter().flat_map(FakeMpsHost::daemons) {
            let uuid = uuid.as_str();
            let is_it = |record: &Value| {
                record["change"]["kind"] == "mpsDaemon"
                    && (uuid.starts_with("MIG-") || record["cardUuid"] == uuid)
            };
            assert!(hardware.iter().any(is_it), "no record of the MPS daemon of {uuid}");
        }
    }

    /// Fails if hardware records, instances on the cards and complete claims disagree, or if the mode of a card is
    /// neither the administrator's nor needed.
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
        if let Some(mps) = &self.mps {
            self.shares_agree(mps, &directory);
        }
    }

    /// Fails if hardware records and MPS daemons, compute modes or time-slices disagree.
    fn shares_agree(&self, mps: &FakeMpsHost, directory: &Path) {
        let mut daemons = BTreeSet::new();
        let mut slices = BTreeMap::new();
        let mut exclusive = BTreeSet::new();
        for name in names(directory) {
            let record: Value = serde_json::from_slice(&fs::read(directory.join(&name)).unwrap()).unwrap();
            let (change, card) = (&record["change"], record["cardUuid"].as_str().unwrap().to_owned());
            if change["kind"] == "mpsDaemon" {
                let uuid = change["deviceUuid"].as_str().unwrap().to_owned();
                if uuid.starts_with("GPU-") {
                    exclusive.insert(card);
                }
                daemons.insert((uuid, change["owner"].as_str().map(str::to_owned)));
            } else if change["kind"] == "timeSlice" {
                slices.insert(card, change["interval"].as_u64().unwrap() as u32);
            }
        }
        assert_eq!(mps.daemons(), daemons, "MPS daemons and hardware records differ");
        for card in 0..self.cards.count() {
            let uuid = real_uuid(card);
            let expected = match (exclusive.contains(&uuid), slices.contains_key(&uuid)) {
                (true, _) => ComputeMode::ExclusiveProcess,
                (false, true) => ComputeMode::Default,
                (false, false) => mps.administrators_mode(card),
            };
            assert_eq!(self.cards.compute_mode(card), expected, "compute mode of card {card}");
            let expected = slices.get(&uuid).copied().unwrap_or_default();
            assert_eq!(self.time_slice(card), expected, "time-slice of card {card}");
        }
    }
}

/// A claim `ns/<name>` with a UID made from its name.
pub fn claim(name: &str) -> ClaimReference {
    ClaimReference { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
}

/// Names in a directory, sorted, without the file of the card locks; empty if there is no directory.
pub fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".tessera-card-locks");
    names.sort();
    names
}

/// Prepares one claim.
pub async fn prepare(
    preparer: &Preparer,
    claim: &ClaimReference,
) -> Result<Vec<PreparedDevice>, PrepareError> {
    let mut answers = preparer.prepare(vec![claim.clone()]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(&claim.uid).unwrap()
}

/// Unprepares one claim.
pub async fn unprepare(preparer: &Preparer, claim: &ClaimReference) -> Result<(), PrepareError> {
    let mut answers = preparer.unprepare(vec![claim.clone()]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(&claim.uid).unwrap()
}

/// A stand-in for the driver's tool: records the time-slice set for a card.
fn slice_tool() -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    const SCRIPT: &str = "#!/bin/sh\necho \"$5\" >\"${0%/*}/../../slices/$3\"\n";
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (path, own) =
        (directory.join("nvidia-smi-slices"), directory.join(format!("slices-{}", std::process::id())));
    if fs::read_to_string(&path).is_ok_and(|text| text == SCRIPT) {
        return path;
    }
    // Several tests may run this at once, so each writes its own file and renames it.
    let own = own.with_extension(format!("{:?}", std::thread::current().id()).replace(['(', ')'], ""));
    fs::write(&own, SCRIPT).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&own, &path).unwrap();
    path
}
