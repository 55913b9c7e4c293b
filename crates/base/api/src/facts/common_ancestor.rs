/// The closest point of the PCIe topology shared by two cards (`nvmlGpuTopologyLevel_t`), closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommonAncestor {
    /// Both are on one board (0, a Tesla K80).
    Internal,
    /// One PCIe switch (10, `PIX`).
    SingleSwitch,
    /// Several PCIe switches below one host bridge (20, `PXB`).
    MultipleSwitches,
    /// One PCIe host bridge (30, `PHB`).
    HostBridge,
    /// One NUMA node (40, `NODE`).
    Node,
    /// The link between NUMA nodes, or a virtual machine hiding its topology (50, `SYS`).
    System,
}

impl CommonAncestor {
    /// From NVML's number; `None` for an unknown one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_header_are_refused() {
        assert_eq!(CommonAncestor::from_nvml(50), Some(CommonAncestor::System));
        assert_eq!(CommonAncestor::from_nvml(5), None);
    }

    #[test]
    fn closer_sorts_first() {
        assert!(CommonAncestor::SingleSwitch < CommonAncestor::MultipleSwitches);
        assert!(CommonAncestor::Node < CommonAncestor::System);
    }
}
