use tessera_api::facts::CommonAncestor;

use crate::error::Reading;

/// The connection between two cards: the driver's answer to each question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairReadings {
    /// Their closest common point on PCIe (`nvmlDeviceGetTopologyCommonAncestor`).
    pub common_ancestor: Reading<CommonAncestor>,
    /// Whether one can use the other's memory over NVLink (`nvmlDeviceGetP2PStatus` for NVLink).
    pub nvlink: Reading<PeerToPeer>,
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
    /// The path between them can't.
    TopologyNotSupported,
    /// Switched off in the driver's registry.
    DisabledByRegistryKey,
    /// No.
    NotSupported,
    /// The driver doesn't know.
    Unknown,
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
        assert_eq!(PeerToPeer::from_number(6), Some(PeerToPeer::Unknown));
        assert_eq!(PeerToPeer::from_number(7), None);
    }
}
