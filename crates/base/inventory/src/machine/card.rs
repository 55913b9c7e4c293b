use std::collections::BTreeSet;

use tessera_api::facts::{ComputeCapability, Fabric, GpuInstanceProfile, NvLink, Placement};
use tessera_api::health::{HealthClass, HealthFault, Recovery};
use tessera_api::{DeviceName, PciBusId, ProfileSpelling};

use super::Mig;

/// Known facts of one physical card. Ordered by PCI address, then by the other fields.
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
    /// How the card addresses system memory: `HMM`, `ATS` or `None` (`nvmlDeviceGetAddressingMode`); absent on platforms
    /// without such modes.
    pub addressing_mode: Option<String>,
    /// Total memory, in bytes (`nvmlDeviceGetMemoryInfo`, `total`).
    pub memory_bytes: Option<u64>,
    /// Memory reserved by driver and firmware, in bytes (`nvmlDeviceGetMemoryInfo_v2`, `reserved`), unavailable to
    /// programs. Not published.
    pub reserved_memory_bytes: u64,
    /// Whether the card can be partitioned by MIG; `None` if unknown (`nvmlDeviceGetMigMode` answers
    /// "not supported" on a card without MIG).
    pub mig_capable: Option<bool>,
    /// The card's MIG profiles and instances; `None` on a card without MIG, and if unknown.
    pub mig: Option<Mig>,
    /// NUMA node of the PCI device (sysfs `numa_node`); `None` for −1 and for a node without CPUs.
    pub numa_node: Option<u32>,
    /// PCIe root complex, `pci0000:3a` (sysfs: first directory of the device's path).
    pub pcie_root: Option<String>,
    /// The *active* NVLinks; empty if the card reports none, `None` if reading failed
    /// (`nvmlDeviceGetNvLinkState`).
    pub nvlinks: Option<Vec<NvLink>>,
    /// The NVLink fabric of the card; `None` where fabrics are not supported (`nvmlDeviceGetGpuFabricInfoV`).
    pub fabric: Option<Fabric>,
    /// Whether the card answers and is offered.
    pub health: Health,
    /// Current faults of the card or its parts, except those covered by [`Self::health`].
    pub faults: BTreeSet<HealthFault>,
    /// The recovery recommended by the driver; `None` where the driver has no recommendations
    /// (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
    pub recovery: Option<Recovery>,
}

/// Whether a card answers and is offered. A card without an answer stays published, with a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// No problem known.
    #[default]
    Healthy,
    /// The card answers, but gets no new work.
    Unhealthy {
        /// The reason, as a taint's value: letters, digits, `-`, `_`, `.`, as in `mig-layout-pending`. Any other text is left out.
        reason: String,
    },
    /// The card fell off the bus (`NVML_ERROR_GPU_IS_LOST`).
    Lost,
    /// A driver call for this card does not return; its facts are from earlier.
    NotAnswering,
}

impl Health {
    /// Whether the card can be queried and changed: present, with the driver answering for the card.
    #[must_use]
    pub const fn answers(&self) -> bool {
        matches!(self, Health::Healthy | Health::Unhealthy { .. })
    }

    /// The fault of a card without an answer.
    #[must_use]
    pub const fn fault(&self) -> Option<HealthFault> {
        match self {
            Health::Healthy | Health::Unhealthy { .. } => None,
            Health::Lost => Some(HealthFault::new(HealthClass::Lost)),
            Health::NotAnswering => Some(HealthFault::new(HealthClass::NotAnswering)),
        }
    }
}

impl Card {
    /// Removes all partitions from the offer of the card, unless MIG mode is on.
    pub fn offer_whole(&mut self) {
        if let Some(mig) = self.mig.as_mut().filter(|mig| !mig.mode) {
            mig.profiles.clear();
        }
    }

    /// All faults of the card, the worst class first.
    pub fn all_faults(&self) -> impl Iterator<Item = HealthFault> + '_ {
        self.health.fault().into_iter().chain(self.faults.iter().cloned())
    }

    /// The memory slices of a partition of this card; `None` for all of the card, and for a partition unknown to the
    /// card.
    #[must_use]
    pub fn slices_of(&self, device: &DeviceName) -> Option<Placement> {
        let (DeviceName::Partition(name) | DeviceName::PartitionMps(name)) = device else { return None };
        let mig = self.mig.as_ref()?;
        if let Some(existing) = &name.existing {
            let instance = mig.instances.iter().find(|instance| instance.id == existing.gpu_instance)?;
            return Some(instance.placement);
        }
        let named = |profile: &&GpuInstanceProfile| {
            ProfileSpelling::of_profile(&profile.name).is_ok_and(|spelling| spelling == name.profile)
        };
        let profile = mig.profiles.iter().find(named)?;
        profile.placements.iter().find(|placement| placement.start == name.start).copied()
    }

    /// Whether the length of the card's time-slices can be set ([`ComputeCapability::has_time_slice_lengths`]); `None` if
    /// its compute capability is unknown.
    #[must_use]
    pub fn has_time_slice_lengths(&self) -> Option<bool> {
        self.compute_capability.map(ComputeCapability::has_time_slice_lengths)
    }

    /// A healthy card at `pci` with no other known facts.
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
            faults: BTreeSet::new(),
            recovery: None,
        }
    }
}
