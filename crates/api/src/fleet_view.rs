//! What the controller tells people of the fleet: the JSON behind its page and `kubectl gpu top`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PciBusId;
use crate::gpu_pool::Allocation;
use crate::usage::CardUsage;

/// Path at which the controller serves a [`FleetView`] as JSON.
pub const PATH: &str = "/fleet.json";

/// The fleet at one moment. Unknown fields are ignored, so that controller and CLI of different versions understand each
/// other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetView {
    /// Unix time, in seconds.
    pub at: u64,
    /// Whether the replica that says so leads: only the leader knows why pods wait.
    pub leads: bool,
    /// Currency of [`CardView::price_per_hour`], as it is shown before amounts: `USD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Nodes with cards, by name.
    pub nodes: Vec<NodeView>,
    /// Pods that the controller holds back, or that wait for managed cards, and those for which kube-scheduler finds no node with
    /// devices of ours.
    pub waiting: Vec<WaitingPod>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// Its cards, by PCI address.
    pub cards: BTreeMap<PciBusId, CardView>,
    /// Why nothing is known of what its cards do; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_usage: Option<String>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardView {
    /// The GpuPool that decides on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Who allocates it.
    pub allocation: Allocation,
    /// Product name; empty where the plugin does not say.
    pub product_name: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Price of an hour of it, where the administrator gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Thousandths of it that claims hold: the sum of those of its holders.
    pub allocated: u32,
    /// Taints that keep work away, but for that of managed cards: `unhealthy=xid-79`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Who holds it, or parts of it.
    pub holders: Vec<Holder>,
    /// What it does, where the node's plugin tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<CardUsage>,
}

/// A claim that holds a device of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Holder {
    /// The device.
    pub device: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// The pods that have reserved it.
    pub pods: Vec<String>,
    /// Thousandths of the card: by memory slices, and of a share by the capacity of which it takes most.
    pub allocated: u32,
    /// Memory that it may use, in MiB, where the node's plugin tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_granted_mib: Option<u64>,
    /// Memory that it uses, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Multiprocessors that it kept busy, as a share of the card's, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
    /// For how long the replica that says so has watched it, in seconds; absent before the second look. The next three are about
    /// that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_seconds: Option<u64>,
    /// The most memory that it used at any look, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u64>,
    /// Mean of [`Holder::sm_activity`]; absent where it was told for less than half of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mean: Option<f64>,
    /// The highest of [`Holder::sm_activity`]; absent where the mean is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_peak: Option<f64>,
}

/// A pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Unix time of its creation, in seconds; 0 where it is unknown.
    pub since: u64,
    /// Why it does not go on.
    pub why: String,
    /// The gang that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    /// Its priority, or the highest of its gang.
    pub priority: i32,
    /// Its place among all that wait, from 1; pods of a gang have the same. 0 where it is unknown, and for pods whose devices
    /// kube-scheduler allocates.
    pub place: u32,
    /// The GpuPools on whose nodes there is what it asks for, free or not, as of some seconds ago.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
}
