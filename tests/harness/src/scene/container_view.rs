use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::eventually;
use crate::{Cluster, TEST_IMAGE};

/// A container's report about itself (`view` of the test image).
#[derive(Clone, Debug, Deserialize)]
pub struct ContainerView {
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// The files in its `/dev`.
    pub devices: Vec<DeviceNode>,
}

/// A file in a container's `/dev`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNode {
    /// Its path.
    pub path: String,
    /// `character`, `block`, or another type.
    pub kind: String,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// Makes a container print its view of the machine, and keep running: sets `image`, `imagePullPolicy` and `command` of its
/// manifest.
///
/// # Panics
/// `container` is not a JSON object.
pub fn hold_and_view(container: &mut Value) {
    container["image"] = json!(TEST_IMAGE);
    container["imagePullPolicy"] = json!("Never");
    container["command"] = json!(["/bin/hold", "view"]);
}

impl ContainerView {
    /// The report of a ready pod's container. Waits for the report: a pod is ready when its program has started, maybe
    /// before the first output.
    ///
    /// # Panics
    /// No report within [`super::LIMIT`].
    pub async fn of(cluster: &Cluster, namespace: &str, pod: &str, container: &str) -> Self {
        eventually(&format!("a report of {pod}/{container}"), async || {
            let log = cluster.logs_of(namespace, pod, Some(container)).await.ok()?;
            log.lines().find_map(|line| serde_json::from_str(line).ok())
        })
        .await
    }

    /// Minor numbers of the cards in `/dev`, in order.
    pub fn cards(&self) -> Vec<u64> {
        let paths = self.devices.iter().map(|node| node.path.as_str());
        let mut minors: Vec<u64> =
            paths.filter_map(|path| path.strip_prefix("/dev/nvidia")?.parse().ok()).collect();
        minors.sort_unstable();
        minors
    }

    /// Paths of the capability device nodes: for a partition, one for its GPU instance and one for its compute
    /// instance.
    pub fn capabilities(&self) -> BTreeSet<String> {
        let paths = self.devices.iter().map(|node| &node.path);
        paths.filter(|path| path.starts_with("/dev/nvidia-caps/nvidia-cap")).cloned().collect()
    }

    /// UUIDs of the cards (`GPU-`) or partitions (`MIG-`) in the report.
    ///
    /// # Panics
    /// The numbers of card device nodes and card UUIDs differ, or there are not two capabilities for each partition.
    pub fn uuids(&self, prefix: &str) -> BTreeSet<String> {
        let values = self.environment.values();
        let uuids: BTreeSet<String> = values.filter(|value| value.starts_with(prefix)).cloned().collect();
        if prefix == "GPU-" {
            assert_eq!(self.cards().len(), uuids.len(), "{self:?}");
        } else {
            assert_eq!(self.capabilities().len(), 2 * uuids.len(), "{self:?}");
        }
        uuids
    }

    /// The only card in the report.
    ///
    /// # Panics
    /// There is none or several.
    pub fn card(&self) -> String {
        self.only("GPU-")
    }

    /// The only partition in the report.
    ///
    /// # Panics
    /// There is none or several.
    pub fn partition(&self) -> String {
        self.only("MIG-")
    }

    fn only(&self, prefix: &str) -> String {
        let uuids = self.uuids(prefix);
        assert_eq!(uuids.len(), 1, "{self:?}");
        uuids.into_iter().collect()
    }
}
