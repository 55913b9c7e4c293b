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
    /// Cards by the GpuPool that decides on them, by name; those of no pool first.
    pub pools: Vec<PoolUse>,
    /// The last day.
    pub day: DayView,
    /// Why nothing has a price although the administrator gave some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices_error: Option<String>,
}

/// Cards' worth, or card-hours, with two decimals: the same figure has the same digits wherever it is shown.
#[must_use]
pub fn cards(value: f64) -> String {
    // By way of thousandths, of which all is counted: a float next to a half is rounded either way.
    let hundredths = ((value.max(0.0) * 1000.0).round() as u64).saturating_add(5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Cards of a GpuPool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolUse {
    /// Name of the pool; absent for cards of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who allocates them; several while that is being changed.
    pub allocations: Vec<Allocation>,
    /// Number of cards.
    pub cards: u32,
    /// Cards' worth that is allocated.
    pub allocated: f64,
    /// Cards' worth of multiprocessors that are busy.
    pub busy: f64,
}

/// The last day, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DayView {
    /// Hours that the sums are of, 24 at most.
    pub hours: f64,
    /// Card-hours that were allocated and in which nothing was busy, as far as it was measured.
    pub idle_hours: f64,
    /// What those cost, in [`FleetView::currency`]; absent where nothing has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cost: Option<f64>,
    /// Sums by namespace; `(others)` for those that are too many.
    pub namespaces: Vec<NamespaceDay>,
    /// The fleet minute by minute, the oldest first.
    pub points: Vec<FleetPoint>,
}

/// What a namespace had and used in the last day, in card-hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceDay {
    /// Name.
    pub namespace: String,
    /// Hours that were allocated.
    pub allocated_hours: f64,
    /// Of them, those in which it is known what the cards did.
    pub measured_hours: f64,
    /// Of those, the hours that multiprocessors were busy.
    pub busy_hours: f64,
    /// Of the measured ones, those in which nothing was busy.
    pub idle_hours: f64,
    /// What those cost, in [`FleetView::currency`]; absent where nothing has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cost: Option<f64>,
}

/// The fleet at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FleetPoint {
    /// Unix time, in seconds.
    pub at: u64,
    /// Cards.
    pub cards: u32,
    /// Of them, allocated.
    pub allocated: f64,
    /// Of them, busy: the sum of what their multiprocessors did.
    pub busy: f64,
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

#[cfg(test)]
mod tests {
    use super::cards;

    #[test]
    fn cards_have_two_decimals_and_halves_go_up() {
        for (value, text) in [
            (0.0, "0.00"),
            (7.375, "7.38"),
            (7.125, "7.13"),
            (0.285, "0.29"),
            (1.0 / 3.0, "0.33"),
            (-0.1, "0.00"),
            (f64::NAN, "0.00"),
            (12_345.0, "12345.00"),
        ] {
            assert_eq!(cards(value), text, "{value}");
        }
    }
}
