use tessera_api::PciBusId;
use tessera_api::facts::{ComputeCapability, Fabric, NvLink};

use super::Mig;

/// What is known of one physical card. Ordered by PCI address, then by all the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Card {
    /// PCI address (`nvmlDeviceGetPciInfo_v3`).
    pub pci: PciBusId,
    /// `GPU-…` (`nvmlDeviceGetUUID`).
    pub uuid: Option<String>,
    /// Position in this boot's enumeration (`nvmlDeviceGetIndex`).
    pub index: Option<u32>,
    /// `N` of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`). Not published.
    pub minor: Option<u32>,
    /// PCI id of the kind of card, device in the high half and vendor in the low: `0x233010DE`
    /// (`nvmlDeviceGetPciInfo_v3`, `pciDeviceId`). Not published.
    pub pci_device_id: Option<u32>,
    /// Marketing name (`nvmlDeviceGetName`).
    pub product_name: Option<String>,
    /// Name of the brand (`nvmlDeviceGetBrand`).
    pub brand: Option<String>,
    /// Name of the architecture (`nvmlDeviceGetArchitecture`).
    pub architecture: Option<String>,
    /// CUDA compute capability (`nvmlDeviceGetCudaComputeCapability`).
    pub compute_capability: Option<ComputeCapability>,
    /// CUDA cores (`nvmlDeviceGetNumGpuCores`). Not published.
    pub cores: Option<u32>,
    /// How it addresses the system's memory, `HMM`, `ATS` or `None` (`nvmlDeviceGetAddressingMode`); absent where the
    /// platform has no such modes.
    pub addressing_mode: Option<String>,
    /// All memory, in bytes (`nvmlDeviceGetMemoryInfo`, `total`).
    pub memory_bytes: Option<u64>,
    /// What of it the driver and the firmware keep for themselves, in bytes (`nvmlDeviceGetMemoryInfo_v2`, `reserved`): no
    /// program gets it. Not published.
    pub reserved_memory_bytes: u64,
    /// Whether the card can be partitioned by MIG; `None` where even that is unknown (`nvmlDeviceGetMigMode` answers
    /// "not supported" on a card that cannot).
    pub mig_capable: Option<bool>,
    /// What MIG can and does make of the card; `None` on a card without MIG, and where nothing is known of it.
    pub mig: Option<Mig>,
    /// NUMA node of the PCI device (sysfs `numa_node`); `None` for −1 and for a node without CPUs.
    pub numa_node: Option<u32>,
    /// PCIe root complex, `pci0000:3a` (sysfs: first directory of the device's path).
    pub pcie_root: Option<String>,
    /// The *active* NVLinks; empty where the card says that it has none, `None` where it says nothing
    /// (`nvmlDeviceGetNvLinkState`).
    pub nvlinks: Option<Vec<NvLink>>,
    /// The NVLink fabric it belongs to; `None` where fabrics are not supported (`nvmlDeviceGetGpuFabricInfoV`).
    pub fabric: Option<Fabric>,
    /// Whether it works.
    pub health: Health,
}

/// Whether a card works. One that does not stays published with a `NoSchedule` taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing known against it.
    #[default]
    Healthy,
    /// It answers but must get no new work.
    Unhealthy {
        /// Why, as the value of a taint: letters, digits, `-`, `_`, `.`, as in `xid-79`. Another text is left out.
        reason: String,
    },
    /// It fell off the bus (`NVML_ERROR_GPU_IS_LOST`).
    Lost,
    /// A call of the driver about it does not return; what is known of it is of before.
    NotAnswering,
}

impl Health {
    /// Whether the card can be asked and changed: it is there, and the driver answers about it.
    #[must_use]
    pub const fn answers(&self) -> bool {
        matches!(self, Health::Healthy | Health::Unhealthy { .. })
    }
}

impl Card {
    /// Whether the length of its time-slices can be set, as [`ComputeCapability::has_time_slice_lengths`] says; `None` where
    /// its compute capability is unknown.
    #[must_use]
    pub fn has_time_slice_lengths(&self) -> Option<bool> {
        self.compute_capability.map(ComputeCapability::has_time_slice_lengths)
    }

    /// A healthy card at `pci` of which nothing else is known.
    #[must_use]
    pub fn new(pci: PciBusId) -> Self {
        Self {
            pci,
            uuid: None,
            index: None,
            minor: None,
            pci_device_id: None,
            product_name: None,
            brand: None,
            architecture: None,
            compute_capability: None,
            cores: None,
            addressing_mode: None,
            memory_bytes: None,
            reserved_memory_bytes: 0,
            mig_capable: None,
            mig: None,
            numa_node: None,
            pcie_root: None,
            nvlinks: None,
            fabric: None,
            health: Health::Healthy,
        }
    }
}
