//! The controller's view of the fleet for people: the JSON behind its page and `kubectl gpu top`.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::PciBusId;
use crate::gpu_pool::Allocation;
use crate::gpu_quota::AmountStatus;
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
    /// Whether the answering replica leads. Only the leader knows why pods wait.
    pub leads: bool,
    /// Currency of [`CardView::price_per_hour`], as written before amounts: `USD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Nodes with cards, by name.
    pub nodes: Vec<NodeView>,
    /// Pods held back by the controller or waiting for managed cards, and pods for which kube-scheduler finds no node with
    /// devices of ours.
    pub waiting: Vec<WaitingPod>,
    /// Cards by the deciding GpuPool's name; cards without a pool come first.
    pub pools: Vec<PoolUse>,
    /// Teams, by name; none without any GpuQuota, or unless the answering replica leads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<TeamView>,
    /// Sums over the last day.
    pub day: DayView,
    /// Why the administrator's prices are not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices_error: Option<String>,
}

impl FleetView {
    /// Name of the team by namespace; absent for a namespace in no GpuQuota.
    #[must_use]
    pub fn teams_of_namespaces(&self) -> HashMap<&str, &str> {
        let mut teams = HashMap::new();
        for team in &self.teams {
            teams.extend(team.namespaces.iter().map(|namespace| (namespace.as_str(), team.name.as_str())));
        }
        teams
    }
}

/// Cards' worth, or card-hours, with two decimals. A figure has the same digits wherever shown.
#[must_use]
pub fn cards(value: f64) -> String {
    // From thousandths, because a float next to a half could round either way.
    let hundredths = thousandths(value).saturating_add(5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Cards' worth to thousandths, for JSON: the smallest share is not 0.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    thousandths(value) as f64 / 1000.0
}

/// The unit of all counts.
fn thousandths(value: f64) -> u64 {
    (value.max(0.0) * 1000.0).round() as u64
}

/// Memory in GiB, from MiB: `12.3 of 80.0 GiB`; `-` for unknown amounts.
#[must_use]
pub fn memory(used: Option<u64>, all: Option<u64>) -> String {
    let gib = |mib: u64| format!("{:.1}", mib as f64 / 1024.0);
    match (used, all) {
        (None, None) => "-".to_owned(),
        (used, Some(all)) => format!("{} of {} GiB", used.map_or("-".to_owned(), gib), gib(all)),
        (Some(used), None) => format!("{} GiB", gib(used)),
    }
}

/// Cards of a GpuPool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolUse {
    /// Name of the pool; absent for cards without a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Allocators of the cards; several during a change.
    pub allocations: Vec<Allocation>,
    /// Number of cards.
    pub cards: u32,
    /// Cards' worth allocated.
    pub allocated: f64,
    /// Cards' worth of busy multiprocessors.
    pub busy: f64,
}

/// A team: the namespaces of a GpuQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TeamView {
    /// Name of the quota.
    pub name: String,
    /// Name of the quota to which its use counts, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Namespaces on which this quota decides, sorted.
    pub namespaces: Vec<String>,
    /// Use by amount, in the order of the quota.
    pub amounts: Vec<AmountStatus>,
    /// Number of pods waiting for devices, with its children's.
    pub waiting: u32,
}

/// The last day, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DayView {
    /// Hours covered by the sums, 24 at most.
    pub hours: f64,
    /// Allocated card-hours without any activity, as far as measured.
    pub idle_hours: f64,
    /// Cost of the idle hours, in [`FleetView::currency`]; absent without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cost: Option<f64>,
    /// Sums by namespace; `(others)` for the remaining ones above the limit.
    pub namespaces: Vec<NamespaceDay>,
    /// The fleet minute by minute, the oldest first.
    pub points: Vec<FleetPoint>,
}

/// Allocation and use of a namespace in the last day, in card-hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceDay {
    /// Name.
    pub namespace: String,
    /// Allocated hours.
    pub allocated_hours: f64,
    /// Allocated hours with known activity of the cards.
    pub measured_hours: f64,
    /// Measured hours of busy multiprocessors.
    pub busy_hours: f64,
    /// Measured hours without any activity.
    pub idle_hours: f64,
    /// Cost of the idle hours, in [`FleetView::currency`]; absent without prices.
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
    /// Allocated cards' worth.
    pub allocated: f64,
    /// Busy cards' worth: the sum of the multiprocessors' activity.
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
    /// Why the activity of its cards is unknown; absent where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_usage: Option<String>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardView {
    /// The GpuPool deciding on the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Allocator of the card.
    pub allocation: Allocation,
    /// Product name; empty where the plugin does not report a name.
    pub product_name: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Price of an hour of the card, where given by the administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Thousandths of the card held by claims: the sum over its holders.
    pub allocated: u32,
    /// Taints keeping work away, except the taint of managed cards: `unhealthy=xid-79`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
    /// Holders of the card or parts of the card.
    pub holders: Vec<Holder>,
    /// Activity of the card, where reported by the node's plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<CardUsage>,
}

/// A claim holding a device of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Holder {
    /// The device.
    pub device: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub claim: String,
    /// The pods that have reserved the claim.
    pub pods: Vec<String>,
    /// Thousandths of the card: by memory slices; for a share, by its most used capacity.
    pub allocated: u32,
    /// Memory available to the claim, in MiB, where the node's plugin reports the amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_granted_mib: Option<u64>,
    /// Memory used by the claim, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<u64>,
    /// Multiprocessors kept busy by the claim, as a share of the card's, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<f64>,
    /// Seconds for which the answering replica has watched the claim; absent before the second sample. The next three fields cover
    /// the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_seconds: Option<u64>,
    /// Highest memory use in any sample, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u64>,
    /// Mean of [`Holder::sm_activity`]; absent where known for less than half of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mean: Option<f64>,
    /// The highest [`Holder::sm_activity`]; absent where the mean is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_peak: Option<f64>,
    /// Start of the time in which the claim's pods use none of its devices, in Unix seconds: by the condition of the claim that its
    /// node's plugin writes where a GpuPool asks for it ([`Idle`](crate::gpu_pool::Idle)). Absent for claims in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<u64>,
    /// Whether the claim is idle because no container of its pods has started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_started: bool,
}

/// A waiting pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Unix time of its creation, in seconds; 0 where unknown.
    pub since: u64,
    /// Why the pod waits.
    pub why: String,
    /// The pod's gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    /// Its priority, or the highest of its gang.
    pub priority: i32,
    /// Its place among all waiting pods, from 1; pods of a gang have the same. 0 where unknown, and for pods whose devices are
    /// allocated by kube-scheduler.
    pub place: u32,
    /// The GpuPools whose nodes have the requested devices, free or not, as of some seconds ago.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::{cards, rounded};

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

    #[test]
    fn small_shares_are_not_lost_in_json() {
        for (value, wanted) in
            [(0.004, "0.004"), (0.375, "0.375"), (0.1 + 0.2, "0.3"), (1.0, "1"), (-0.1, "0")]
        {
            assert_eq!(rounded(value).to_string(), wanted, "{value}");
        }
    }
}
