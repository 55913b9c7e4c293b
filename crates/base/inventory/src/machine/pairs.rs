use std::collections::BTreeMap;

use tessera_api::PciBusId;
use tessera_api::facts::CommonAncestor;

/// Known facts of two cards together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Whether the driver allows peer access over NVLink (`nvmlDeviceGetP2PStatus` with
    /// `NVML_P2P_CAPS_INDEX_NVLINK` says `NVML_P2P_STATUS_OK`).
    pub nvlink_peer_access: Option<bool>,
    /// How close they are on PCIe (`nvmlDeviceGetTopologyCommonAncestor`).
    pub common_ancestor: Option<CommonAncestor>,
}

/// Facts of pairs of cards. A pair has no direction: `(a, b)` and `(b, a)` are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(BTreeMap<(PciBusId, PciBusId), Pair>);

impl Pairs {
    /// Sets the facts of two cards, replacing earlier ones.
    pub fn insert(&mut self, one: PciBusId, other: PciBusId, pair: Pair) {
        self.0.insert((one.min(other), one.max(other)), pair);
    }

    /// Known facts of two cards.
    #[must_use]
    pub fn get(&self, one: PciBusId, other: PciBusId) -> Pair {
        self.0.get(&(one.min(other), one.max(other))).copied().unwrap_or_default()
    }
}
