//! Reports others who allocate or partition this node's cards: the parts of NVIDIA's GPU Operator. Nothing is done against them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;
use tessera_kube_util::events::{NodeEvents, Severity};
use tessera_kube_util::metrics::add;
use tessera_kube_util::node_labels::Labels;
use tokio_util::sync::CancellationToken;

/// Interval of looking at the sockets.
const LOOK: Duration = Duration::from_secs(30);

/// Reasons of the Events.
const FOUND: &str = "CardsOwnedByOthers";
const GONE: &str = "OtherOwnerGone";

/// NVIDIA's device plugin names its sockets after its resources: `nvidia-gpu.sock`, `nvidia-mig-1g.10gb.sock`.
const DEVICE_PLUGIN: &str = "nvidia-";
/// The name of NVIDIA's DRA driver for GPUs.
const DRA_DRIVER: &str = "gpu.nvidia.com";
/// The labels with the MIG manager's state and with its order.
const MIG_STATE: &str = "nvidia.com/mig.config.state";
const MIG_CONFIG: &str = "nvidia.com/mig.config";

/// Another owner of this node's cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    DevicePlugin,
    MigManager,
    DraDriver,
}

/// Whether others own the cards. Clones share their values.
#[derive(Clone, Debug)]
pub struct OwnerMetrics(Family<OwnerLabel, Gauge>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OwnerLabel {
    owner: &'static str,
}

/// Looks for other owners of the cards.
pub struct OtherOwners {
    /// Where the kubelet keeps the sockets of device plugins and DRA drivers.
    pub kubelet_directory: PathBuf,
    /// This driver.
    pub driver_name: String,
    /// The node's labels.
    pub labels: Labels,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
    /// Gauges of the found owners.
    pub metrics: OwnerMetrics,
}

impl Owner {
    const ALL: [Self; 3] = [Self::DevicePlugin, Self::MigManager, Self::DraDriver];

    const fn label(self) -> &'static str {
        match self {
            Self::DevicePlugin => "device_plugin",
            Self::MigManager => "mig_manager",
            Self::DraDriver => "dra_driver",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::DevicePlugin => "NVIDIA's device plugin",
            Self::MigManager => "NVIDIA's MIG manager",
            Self::DraDriver => "the DRA driver gpu.nvidia.com",
        }
    }

    /// The owner's effect beside this driver, and the remedy.
    const fn advice(self) -> &'static str {
        match self {
            Self::DevicePlugin => {
                "it gives out the cards that this driver gives out, and neither knows of the other: two pods may get one card. \
                 Keep it away from the node (with the GPU Operator: label the node nvidia.com/gpu.deploy.device-plugin=false), \
                 or this driver (chart value kubeletPlugin.nodeSelector)"
            }
            Self::MigManager => {
                "it ends what uses the cards and partitions them anew when the node's label changes. Keep it away from the node \
                 (with the GPU Operator: label the node nvidia.com/gpu.deploy.mig-manager=false) and remove its labels; GpuPools \
                 can follow the label nvidia.com/mig.config (offer.layoutFromNodeLabel)"
            }
            Self::DraDriver => {
                "it gives out the cards that this driver gives out, and neither knows of the other: two pods may get one card. \
                 Keep one of them away from the node (chart value kubeletPlugin.nodeSelector)"
            }
        }
    }
}

impl OwnerMetrics {
    /// Registers the metrics, all zero.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self(add(registry, "other_owners", "1 where others give out or partition this node's cards"));
        metrics.set(&BTreeMap::new());
        metrics
    }

    fn set(&self, found: &BTreeMap<Owner, String>) {
        for owner in Owner::ALL {
            let label = OwnerLabel { owner: owner.label() };
            self.0.get_or_create(&label).set(i64::from(found.contains_key(&owner)));
        }
    }
}

impl OtherOwners {
    /// Looks until `shutdown`. Each owner is reported once while it lasts.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let look = async {
            let mut told = BTreeSet::new();
            loop {
                self.look(&mut told).await;
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    changed = self.labels.changed() => if changed.is_err() { return std::future::pending().await },
                }
            }
        };
        shutdown.run_until_cancelled(look).await;
    }

    async fn look(&mut self, told: &mut BTreeSet<Owner>) {
        let labels = self.labels.borrow_and_update().clone();
        let (directory, driver) = (self.kubelet_directory.clone(), self.driver_name.clone());
        let found = tokio::task::spawn_blocking(move || find(&directory, &driver, labels.as_ref())).await;
        let Ok(found) = found else { return };
        self.metrics.set(&found);
        for (owner, sign) in &found {
            if told.contains(owner) {
                continue;
            }
            let note = format!("{} is on this node ({sign}): {}", owner.name(), owner.advice());
            // An Event that cannot be sent is retried with the next look.
            if self.of_node.send(Severity::Warning, "Discover", FOUND, &note).await {
                tracing::warn!("{note}");
                told.insert(*owner);
            }
        }
        let gone: Vec<Owner> = told.iter().filter(|owner| !found.contains_key(owner)).copied().collect();
        for owner in gone {
            told.remove(&owner);
            let note = format!("{} is on this node no longer", owner.name());
            tracing::info!("{note}");
            self.of_node.send(Severity::Normal, "Discover", GONE, &note).await;
        }
    }
}

/// The owners found, each with its evidence. Blocks on the file system.
fn find(kubelet: &Path, driver: &str, labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Owner, String> {
    let mut found = BTreeMap::new();
    let of_device_plugin = |name: &str| name.starts_with(DEVICE_PLUGIN) && name.ends_with(".sock");
    if let Some(socket) = served(&kubelet.join("device-plugins"), of_device_plugin) {
        found.insert(Owner::DevicePlugin, format!("socket device-plugins/{socket}"));
    }
    let of_driver = |name: &str| {
        let rest = name.strip_prefix(DRA_DRIVER).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.ends_with("reg.sock"))
    };
    if driver != DRA_DRIVER
        && let Some(socket) = served(&kubelet.join("plugins_registry"), of_driver)
    {
        found.insert(Owner::DraDriver, format!("socket plugins_registry/{socket}"));
    }
    if let Some(labels) = labels
        && let Some(state) = labels.get(MIG_STATE)
    {
        let config = labels.get(MIG_CONFIG).map(String::as_str).unwrap_or_default();
        found.insert(Owner::MigManager, format!("labels {MIG_CONFIG}={config}, {MIG_STATE}={state}"));
    }
    found
}

/// The first matching socket with a listener: sockets of a killed plugin stay.
fn served(directory: &Path, is: impl Fn(&str) -> bool) -> Option<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| is(name));
    names.sort();
    names.into_iter().find(|name| UnixStream::connect(directory.join(name)).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn whoever_listens_or_has_labelled_the_node_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let kubelet = directory.path();
        let owners = |driver: &str, labels: &[(&str, &str)]| -> Vec<Owner> {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            find(kubelet, driver, Some(&labels)).into_keys().collect()
        };
        assert_eq!(
            owners("gpu.tessera.dev", &[("nvidia.com/mig.config", "all-disabled")]),
            [],
            "anybody may set that"
        );
        for folder in ["device-plugins", "plugins_registry"] {
            fs::create_dir(kubelet.join(folder)).unwrap();
        }
        let listen = |name: &str| UnixListener::bind(kubelet.join(name)).unwrap();
        let _others = [
            "device-plugins/kubelet.sock",
            "device-plugins/rdma.sock",
            "plugins_registry/compute-domain.nvidia.com-reg.sock",
            "plugins_registry/gpu.tessera.dev-uid-reg.sock",
        ]
        .map(listen);
        assert_eq!(owners("gpu.tessera.dev", &[]), []);
        drop(listen("device-plugins/nvidia-gpu.sock"));
        assert_eq!(owners("gpu.tessera.dev", &[]), [], "nobody listens any more");
        let _theirs =
            ["device-plugins/nvidia-mig-1g.10gb.sock", "plugins_registry/gpu.nvidia.com-uid-reg.sock"]
                .map(listen);
        let labels = [("nvidia.com/mig.config.state", "success")];
        assert_eq!(owners("gpu.tessera.dev", &labels), Owner::ALL);
        assert_eq!(owners("gpu.nvidia.com", &[]), [Owner::DevicePlugin], "its own socket");
        assert_eq!(find(&kubelet.join("none"), "gpu.tessera.dev", None), BTreeMap::new());
    }
}
