use std::collections::BTreeMap;

use tessera_api::PciBusId;

/// What is known of two cards together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Whether the driver allows peer access over NVLink (`nvmlDeviceGetP2PStatus` with
    /// `NVML_P2P_CAPS_INDEX_NVLINK` says `NVML_P2P_STATUS_OK`).
    pub nvlink_peer_access: Option<bool>,
    /// How close they are on PCIe (`nvmlDeviceGetTopologyCommonAncestor`).
    pub common_ancestor: Option<CommonAncestor>,
}

/// The nearest thing that two cards are both behind (`nvmlGpuTopologyLevel_t`), nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommonAncestor {
    /// One board with several GPUs (0).
    Internal,
    /// One PCIe switch (10, `PIX`).
    SingleSwitch,
    /// Several PCIe switches (20, `PXB`).
    MultipleSwitches,
    /// A PCIe host bridge (30, `PHB`).
    HostBridge,
    /// A NUMA node (40, `NODE`).
    Node,
    /// Only the system: between sockets, or a virtual machine that does not say (50, `SYS`).
    System,
}

impl CommonAncestor {
    /// From NVML's number; `None` for one that is not known.
    #[must_use]
    pub const fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Internal,
            10 => Self::SingleSwitch,
            20 => Self::MultipleSwitches,
            30 => Self::HostBridge,
            40 => Self::Node,
            50 => Self::System,
            _ => return None,
        })
    }
}

/// Facts of pairs of cards. A pair has no direction: `(a, b)` and `(b, a)` are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(BTreeMap<(PciBusId, PciBusId), Pair>);

impl Pairs {
    /// States what is known of two cards, instead of what was known before.
    pub fn insert(&mut self, one: PciBusId, other: PciBusId, pair: Pair) {
        self.0.insert((one.min(other), one.max(other)), pair);
    }

    /// What is known of two cards.
    #[must_use]
    pub fn get(&self, one: PciBusId, other: PciBusId) -> Pair {
        self.0.get(&(one.min(other), one.max(other))).copied().unwrap_or_default()
    }
}
