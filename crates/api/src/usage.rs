//! What a node's cards do: served by the kubelet plugin as JSON at [`PATH`] of its port for metrics, for the controller's
//! fleet page and `kubectl gpu top`. Its `/metrics` have the same numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PciBusId;

/// Path below which the plugin serves a [`NodeUsage`].
pub const PATH: &str = "/usage";

/// The cards of a node, as of one look at them. What NVML does not tell of a card is absent. Unknown fields are ignored, so
/// that plugin and controller of different versions understand each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Unix time of the look, in seconds.
    pub at: u64,
    /// By PCI address.
    pub cards: BTreeMap<PciBusId, CardUsage>,
    /// Claims that are prepared on the node.
    pub claims: Vec<ClaimUsage>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardUsage {
    /// UUID (`nvmlDeviceGetUUID`).
    pub uuid: String,
    /// Product name (`nvmlDeviceGetName`).
    pub product_name: String,
    /// All of its memory, in MiB.
    pub memory_total_mib: u64,
    /// Memory in use, in MiB, without what the driver keeps for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Share of its multiprocessors that were busy since the look before, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
    /// In watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// In degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// Processes on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// A claim that is prepared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimUsage {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Names of the pods that have reserved it.
    pub pods: Vec<String>,
    /// Its devices of this driver.
    pub devices: Vec<DeviceUsage>,
}

/// What a claim has of a device, and uses of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceUsage {
    /// Name in the ResourceSlice.
    pub device: String,
    /// Memory that it may use, in MiB: of the card, the partition or the share.
    pub memory_granted_mib: u64,
    /// Multiprocessors that it may use, as a share of those of the whole card, 0 to 1; absent for time-slices, which have all of
    /// them for some of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_granted: Option<f64>,
    /// Memory that its processes use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Multiprocessors that its processes kept busy, as a share of those of the whole card, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
}
