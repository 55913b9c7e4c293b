use crate::Reading;

/// How two cards reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The closest point that both share on the way over PCIe (`nvmlDeviceGetTopologyCommonAncestor`).
    pub common_ancestor: Reading<CommonAncestor>,
    /// Whether one can use the other's memory over NVLink (`nvmlDeviceGetP2PStatus` for NVLink).
    pub nvlink: Reading<PeerToPeer>,
}

/// The closest common point of two cards over PCIe (`nvmlGpuTopologyLevel_t`), closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommonAncestor {
    /// Both are on one board (a Tesla K80).
    Internal,
    /// One PCIe switch: `PIX`.
    SingleSwitch,
    /// Several PCIe switches below one host bridge: `PXB`.
    MultipleSwitches,
    /// One PCIe host bridge: `PHB`.
    HostBridge,
    /// One NUMA node: `NODE`.
    Node,
    /// The link between NUMA nodes: `SYS`.
    System,
}

/// Whether two cards can use each other's memory (`nvmlGpuP2PStatus_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerToPeer {
    /// Yes.
    Ok,
    /// The chipset can't.
    ChipsetNotSupported,
    /// One of the cards can't.
    GpuNotSupported,
    /// The way between them can't.
    TopologyNotSupported,
    /// Switched off in the driver's registry.
    DisabledByRegistryKey,
    /// No.
    NotSupported,
    /// The driver doesn't know.
    Unknown,
}

impl CommonAncestor {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => CommonAncestor::Internal,
            10 => CommonAncestor::SingleSwitch,
            20 => CommonAncestor::MultipleSwitches,
            30 => CommonAncestor::HostBridge,
            40 => CommonAncestor::Node,
            50 => CommonAncestor::System,
            _ => return None,
        })
    }
}

impl PeerToPeer {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => PeerToPeer::Ok,
            1 => PeerToPeer::ChipsetNotSupported,
            2 => PeerToPeer::GpuNotSupported,
            3 => PeerToPeer::TopologyNotSupported,
            4 => PeerToPeer::DisabledByRegistryKey,
            5 => PeerToPeer::NotSupported,
            6 => PeerToPeer::Unknown,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_header_are_refused() {
        assert_eq!(CommonAncestor::from_number(50), Some(CommonAncestor::System));
        assert_eq!(CommonAncestor::from_number(5), None);
        assert_eq!(PeerToPeer::from_number(7), None);
    }

    #[test]
    fn closer_sorts_first() {
        assert!(CommonAncestor::SingleSwitch < CommonAncestor::MultipleSwitches);
        assert!(CommonAncestor::Node < CommonAncestor::System);
    }
}
