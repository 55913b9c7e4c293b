//! Use of a node's cards: served by the kubelet plugin as JSON at [`PATH`] of its port for metrics, for the controller's
//! fleet page and `kubectl gpu top`. Its `/metrics` have the same numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PciBusId;

/// Path below which the plugin serves a [`NodeUsage`].
pub const PATH: &str = "/usage";

/// The cards of a node at the time of one sample. Values not reported by NVML are absent. Unknown fields are ignored, so
/// that plugin and controller of different versions understand each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Unix time of the sample, in seconds.
    pub at: u64,
    /// By PCI address.
    pub cards: BTreeMap<PciBusId, CardUsage>,
    /// Claims prepared on the node.
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
    /// Memory in use, in MiB, without the driver's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Share of its multiprocessors busy since the previous sample, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
    /// Power draw in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Temperature in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// Number of processes on the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// A prepared claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimUsage {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Names of the pods that have reserved the claim.
    pub pods: Vec<String>,
    /// Its devices of this driver.
    pub devices: Vec<DeviceUsage>,
}

/// A claim's grant of a device, and its use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceUsage {
    /// Name in the ResourceSlice.
    pub device: String,
    /// Memory available to the claim, in MiB: of the card, the partition or the share.
    pub memory_granted_mib: u64,
    /// Multiprocessors available to the claim, as a share of the whole card's, 0 to 1; absent for time-slices, which have all of
    /// them for some of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_granted: Option<f64>,
    /// Memory used by the claim's processes, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Multiprocessors kept busy by the claim's processes, as a share of the whole card's, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
}
