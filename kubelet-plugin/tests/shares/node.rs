//! A node: an emulated machine, mps-host, a fake API server, and directories for the plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tessera_api::Offer;
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_inventory::Machine;
use tessera_journal::{FileSystem, LocalFileSystem};
use tessera_kubelet_plugin::cdi::Roots;
use tessera_kubelet_plugin::gpu_pools::Resolution;
use tessera_kubelet_plugin::prepare::{NoObserver, PrepareError, PrepareOptions, Preparer};
use tessera_nvml::{Library, Nvml};
use tokio::sync::watch;

use crate::api::{Api, result};
use crate::host::Host;

pub struct Node {
    pub host: Host,
    pub api: Api,
    /// The offer of the cards.
    pub resolution: watch::Sender<Option<Arc<Resolution>>>,
    /// The published machine.
    pub published: watch::Sender<Option<Arc<Machine>>>,
    directory: TempDir,
    library: Arc<dyn Nvml>,
    driver_name: &'static str,
}

impl Node {
    /// The offer of all cards from now on.
    pub fn offer(&self, fields: &serde_json::Value) {
        let offers = Offer::decode(fields).unwrap().into();
        self.resolution.send_replace(Some(Arc::new(Resolution { offers, ..Resolution::default() })));
    }

    /// A node with mps-host.
    pub fn new(hardware: &str) -> Self {
        let mut node = Self::without(hardware);
        node.host.start();
        node
    }

    /// A node without mps-host.
    pub fn without(hardware: &str) -> Self {
        Self::on(Host::without(hardware))
    }

    /// A node on this host.
    pub fn on(host: Host) -> Self {
        let library = Arc::new(Library::open_below(&host.machine.root()).unwrap());
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("kubelet")).unwrap();
        Self {
            host,
            api: Api::default(),
            resolution: watch::Sender::new(Some(Arc::default())),
            published: watch::Sender::new(None),
            directory,
            library,
            driver_name: "gpu.tessera.dev",
        }
    }

    /// A node with mps-host, where the plugin has the name of NVIDIA's driver.
    pub fn named_as_nvidias(hardware: &str) -> Self {
        Self { driver_name: "gpu.nvidia.com", ..Self::new(hardware) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the plugin's preparer.
    pub async fn start(&self) -> Preparer {
        self.start_on(Arc::new(LocalFileSystem)).await.unwrap()
    }

    pub async fn start_on(&self, file_system: Arc<dyn FileSystem>) -> Result<Preparer, PrepareError> {
        let machine = self.host.machine.root();
        let mut options = PrepareOptions::new(self.driver_name, "node-a", &self.path("kubelet"));
        options.cdi_directory = self.path("cdi");
        options.roots = Roots {
            driver: machine.clone(),
            driver_paths: Vec::new(),
            host_driver: machine.clone(),
            dev: machine.clone(),
            sysfs: machine.join("sys"),
            proc: machine.join("proc"),
        };
        options.mps_directory = self.host.directory().to_owned();
        options.resolution = self.resolution.subscribe();
        options.answer_within = Duration::from_secs(20);
        options.file_system = file_system;
        let journal = Arc::new(options.open_journal()?);
        let hardware = watch::Sender::new(Some(self.library.clone())).subscribe();
        let published = self.published.subscribe();
        Preparer::open(options, journal, self.api.client(), hardware, published, Arc::new(NoObserver)).await
    }

    /// Name of a device of a card, with a suffix such as `mps`; without suffix, of the card itself.
    pub fn device(&self, card: usize, suffix: &str) -> String {
        let pci = self.host.machine.cards()[card]["pci"].as_str().unwrap().to_ascii_lowercase();
        // 0000:3b:00.0
        let parts: Vec<&str> = pci.split([':', '.']).collect();
        let dash = if suffix.is_empty() { "" } else { "-" };
        format!("gpu-{}-{}{dash}{suffix}", parts[1], parts[2])
    }

    /// Allocates an MPS share.
    pub fn allocate_mps(
        &self,
        claim: &ClaimReference,
        device: &str,
        memory: &str,
        compute: u32,
        clients: u32,
    ) {
        let mut share = result("gpu", device);
        share["shareID"] = json!(format!("5ba7e000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 47)));
        share["consumedCapacity"] =
            json!({"memory": memory, "compute": compute.to_string(), "clients": clients.to_string()});
        self.api.put(claim, vec![share]);
    }

    /// Allocates devices, each with its request, and configuration objects, each with its requests, its
    /// kind and its `sharing`. Request `watch` has adminAccess.
    pub fn allocate_configured(
        &self,
        claim: &ClaimReference,
        devices: &[(&str, &str)],
        configs: &[(&[&str], &str, Value)],
    ) {
        let result = |(request, device): &(&str, &str)| {
            let mut result = result(request, device);
            result["driver"] = json!(self.driver_name);
            result["pool"] = json!(format!("{}/node-a", self.driver_name));
            if *request == "watch" {
                result["adminAccess"] = json!(true);
            }
            result
        };
        let api_version = self.api_version();
        let configs: Vec<_> = configs
            .iter()
            .map(|(requests, kind, sharing)| {
                let parameters = json!({"apiVersion": api_version, "kind": kind, "sharing": sharing});
                ("FromClaim", *requests, parameters)
            })
            .collect();
        let results = devices.iter().map(result).collect();
        self.api.put_configured(claim, results, self.driver_name, &configs);
    }

    /// Allocates a share of a whole card or a partition, with configuration as in [`Self::allocate_configured`].
    pub fn allocate_share(&self, claim: &ClaimReference, device: &str, configs: &[(&str, Value)]) {
        let mut share = result("gpu", device);
        share["driver"] = json!(self.driver_name);
        share["pool"] = json!(format!("{}/node-a", self.driver_name));
        share["shareID"] = json!(format!("5ba7e000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 47)));
        share["consumedCapacity"] = json!({"memory": "0", "shares": "1"});
        let api_version = self.api_version();
        let config = |(kind, sharing): &(&str, Value)| {
            let parameters = json!({"apiVersion": api_version, "kind": kind, "sharing": sharing});
            ("FromClaim", [].as_slice(), parameters)
        };
        let configs: Vec<_> = configs.iter().map(config).collect();
        self.api.put_configured(claim, vec![share], self.driver_name, &configs);
    }

    fn api_version(&self) -> &'static str {
        match self.driver_name {
            "gpu.nvidia.com" => "resource.nvidia.com/v1beta1",
            _ => "gpu.tessera.dev/v1alpha1",
        }
    }

    /// UUID of a card.
    pub fn uuid(&self, card: usize) -> String {
        self.host.machine.cards()[card]["uuid"].as_str().unwrap().to_owned()
    }

    /// Allocates a time-slice.
    pub fn allocate_time_slice(&self, claim: &ClaimReference, device: &str) {
        let mut share = result("gpu", device);
        share["shareID"] = json!(format!("5ba7e000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 47)));
        share["consumedCapacity"] = json!({"slots": "1"});
        self.api.put(claim, vec![share]);
    }

    /// The claim's CDI spec.
    pub fn spec(&self, claim: &ClaimReference) -> Value {
        let entries = fs::read_dir(self.path("cdi")).unwrap().flatten();
        let is_it =
            |name: &str| name.ends_with(&format!("-claim_{}.json", claim.uid)) && !name.starts_with('.');
        let mut files = entries.filter(|entry| is_it(&entry.file_name().to_string_lossy()));
        serde_json::from_slice(&fs::read(files.next().unwrap().path()).unwrap()).unwrap()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names
    }

    /// The journal's hardware records.
    pub fn hardware(&self) -> Vec<String> {
        let names = self.names(&format!("kubelet/plugins/{}/journal/hardware", self.driver_name));
        names.into_iter().map(|name| name.trim_end_matches(".json").to_owned()).collect()
    }

    /// Whether nothing of any claim is left.
    pub async fn is_empty(&self) -> bool {
        let is_unset = |index: usize| {
            let card = self.host.card(index);
            card["computeMode"] == 0 && card["timeSlice"] == 0 && card["processes"] == json!([])
        };
        self.hardware().is_empty()
            && self.names("cdi").is_empty()
            && self.names(&format!("kubelet/plugins/{}/journal/claims", self.driver_name)).is_empty()
            && self.host.list().await.is_empty()
            && self.host.mps_processes().is_empty()
            && (0..self.host.machine.cards().len()).all(is_unset)
    }
}

/// A claim `ns/<name>`.
pub fn claim(name: &str) -> ClaimReference {
    ClaimReference { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
}

pub async fn prepare(
    preparer: &Preparer,
    claim: &ClaimReference,
) -> Result<Vec<PreparedDevice>, PrepareError> {
    preparer.prepare(vec![claim.clone()]).await.remove(&claim.uid).unwrap()
}

pub async fn unprepare(preparer: &Preparer, claim: &ClaimReference) -> Result<(), PrepareError> {
    preparer.unprepare(vec![claim.clone()]).await.remove(&claim.uid).unwrap()
}

/// Whether a path exists.
pub fn is_there(path: &Path) -> bool {
    path.exists()
}
