//! What the plugin tells the controller of its node and selectors need not know: an annotation on the first slice of the
//! node's pool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PciBusId;
use crate::gpu_pool::{Allocation, Placement};

/// Key of the annotation; its value is a [`NodeReport`] as JSON.
pub const ANNOTATION: &str = "gpu.tessera.dev/node-report";

/// What the plugin says of its node. Unknown fields are ignored, so that plugin and controller of different versions
/// understand each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// The cards by PCI address.
    pub cards: BTreeMap<PciBusId, CardReport>,
    /// Errors of pools that select the node, or whose spec never could be read, by the pool's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolReport>,
    /// NVLinks between two cards, where there are any; the lower address first. Through switches, the links of the card
    /// with fewer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(PciBusId, PciBusId, u32)>,
    /// MB/s of one NVLink in one direction, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate: Option<u32>,
    /// Whether NVLinks go through switches, so that a card has the same links for all others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub through_switches: bool,
    /// How close two cards are on PCIe, as `nvidia-smi topo -m` says it; the lower address first. Pairs at the level of
    /// `other_pairs` are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pcie: Vec<(PciBusId, PciBusId, String)>,
    /// The level of pairs that `pcie` does not name (`SYS`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_pairs: Option<String>,
    /// The version of the node's cgroups, 1 or 2, where it is known. Kubelets since 1.35 do not start on version 1 unless they are told
    /// to (KEP-5573).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_version: Option<u8>,
    /// The version of NVIDIA's container toolkit on the node, where its hooks let an image run code as the node's root
    /// (CVE-2025-23266).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_container_toolkit: Option<String>,
    /// The last known `gitVersion` of the API server: `v1.37.2`; empty where it refuses to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Works, and is perhaps not wanted: cards without a GpuPool are offered whole alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardReport {
    /// The GpuPool that decides on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The NUMA node, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Who allocates it.
    pub allocation: Allocation,
    /// How nodes are chosen.
    pub placement: Placement,
    /// Pools that select it as well but come after `pool`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outranked: Vec<String>,
    /// Devices that stay published as they are because claims hold them: devices no longer offered, and whole cards given out
    /// without counters whose partitions or shares are to be offered now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// What a [`PoolReport::error`] about the pool's layout begins with.
pub const LAYOUT: &str = "offer.layout: ";

/// What a node says of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolReport {
    /// Why its spec, or the expression of its `cards`, cannot be used, or with [`LAYOUT`] in front, why its layout is
    /// not applied; cut to 512 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What works, and will hardly be what is wanted: shares of some of its cards are very small, or very many.
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
