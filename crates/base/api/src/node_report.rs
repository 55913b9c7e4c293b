//! Node facts from the plugin for the controller, not needed in selectors: an annotation on the first slice of the
//! node's pool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PciBusId;
use crate::gpu_pool::{Allocation, Idle, Placement};
use crate::offer::OnOveruse;

/// Key of the annotation; its value is a [`NodeReport`] as JSON.
pub const ANNOTATION: &str = "gpu.tessera.dev/node-report";

/// The plugin's report of its node. Unknown fields are ignored, so that plugin and controller of different versions
/// understand each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// The cards by PCI address.
    pub cards: BTreeMap<PciBusId, CardReport>,
    /// Errors of pools selecting the node, or whose spec never could be read, by the pool's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolReport>,
    /// NVLinks between two cards, where present; the lower address first. Through switches, the links of the card
    /// with fewer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(PciBusId, PciBusId, u32)>,
    /// MB/s of one NVLink in one direction, where present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate: Option<u32>,
    /// Whether NVLinks go through switches, so that a card has the same links to all others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub through_switches: bool,
    /// How close two cards are on PCIe, in the terms of `nvidia-smi topo -m`; the lower address first. Pairs at the level of
    /// `other_pairs` are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pcie: Vec<(PciBusId, PciBusId, String)>,
    /// The level of pairs missing in `pcie` (`SYS`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_pairs: Option<String>,
    /// The version of the node's cgroups, 1 or 2, where known. Kubelets since 1.35 refuse to start on version 1 unless configured
    /// otherwise (KEP-5573).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_version: Option<u8>,
    /// The version of NVIDIA's container toolkit on the node, where its hooks let an image run code as the node's root
    /// (CVE-2025-23266).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_container_toolkit: Option<String>,
    /// The last known `gitVersion` of the API server: `v1.37.2`; empty where the server does not reveal its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// A working but perhaps unintended state: cards without a GpuPool are offered only whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardReport {
    /// The GpuPool deciding on the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The NUMA node, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Allocator of the card.
    pub allocation: Allocation,
    /// How nodes are chosen.
    pub placement: Placement,
    /// When its claims are idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// The consequence for claims that hold more memory than their part.
    #[serde(skip_serializing_if = "OnOveruse::is_tell")]
    pub on_overuse: OnOveruse,
    /// Other pools selecting the card, outranked by `pool`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outranked: Vec<String>,
    /// Devices kept published unchanged because claims hold them: devices no longer offered, and whole cards given out
    /// without counters although their partitions or shares are to be offered now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// Prefix of a [`PoolReport::error`] about the pool's layout.
pub const LAYOUT: &str = "offer.layout: ";

/// A node's report of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolReport {
    /// Why its spec, or the expression of its `cards`, cannot be used, or with [`LAYOUT`] in front, why its layout is
    /// not applied; cut to 512 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A working but probably unintended state: shares of some of its cards are very small, or very many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let text =
            r#"{"cards": {"0000:3b:00.0": {"pool": "a", "allocation": "Steered", "later": 1}}, "later": []}"#;
        let report: NodeReport = serde_json::from_str(text).unwrap();
        let card = report.cards.values().next().unwrap();
        assert_eq!((card.pool.as_deref(), card.allocation), (Some("a"), Allocation::Steered));
        let again: NodeReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(again, report);
    }
}
