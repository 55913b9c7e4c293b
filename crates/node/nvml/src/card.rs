use crate::addressing_mode::AddressingMode;
use crate::architecture::Architecture;
use crate::brand::Brand;
use crate::compute_mode::ComputeMode;
use crate::cpu_set::CpuSet;
use crate::error::{NvmlError, Reading};
use crate::mig::MigMode;
use crate::nvlink::NvLinkReadings;
use crate::{ComputeCapability, Fabric};
use tessera_api::PciBusId;

/// Identity of a card, read at the moment of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Position in this boot's enumeration (`nvmlDeviceGetIndex`).
    pub index: u32,
    /// `N` of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`).
    pub minor: u32,
    /// `GPU-…` (`nvmlDeviceGetUUID`).
    pub uuid: String,
    /// Whether MIG mode is on now; `None` for a card without MIG (`nvmlDeviceGetMigMode`).
    pub mig_mode: Option<bool>,
}

/// Memory of a card, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Physical memory, the reserved part included.
    pub total: u64,
    /// Held by driver and firmware; never available to programs.
    pub reserved: u64,
    /// Allocated by programs.
    pub used: u64,
    /// Not allocated.
    pub free: u64,
}

/// Busy share of a card's last sample period (1/6 s to 1 s), in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    /// At least one kernel was running.
    pub gpu: u32,
    /// Device memory was being read or written.
    pub memory: u32,
}

/// All readings of one card: the driver's answer to each question. A failed query costs this fact and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardReadings {
    /// Its place, fixed while the card is in the machine.
    pub address: PciBusId,
    /// Position in this boot's enumeration.
    pub index: Result<u32, NvmlError>,
    /// `N` of `/dev/nvidiaN`.
    pub minor: Result<u32, NvmlError>,
    /// `GPU-…`.
    pub uuid: Result<String, NvmlError>,
    /// PCI id of the kind of card, device in the high half and vendor in the low: `0x233010DE`.
    pub pci_device_id: Result<u32, NvmlError>,
    /// `NVIDIA H100 80GB HBM3`.
    pub name: Result<String, NvmlError>,
    /// Product line.
    pub brand: Reading<Brand>,
    /// Chip generation.
    pub architecture: Reading<Architecture>,
    /// CUDA compute capability.
    pub compute_capability: Reading<ComputeCapability>,
    /// CUDA cores (`nvmlDeviceGetNumGpuCores`).
    pub cores: Reading<u32>,
    /// Memory; `None` on cards sharing the system's memory (GB10).
    pub memory: Reading<Memory>,
    /// MIG mode; `None` on cards without MIG.
    pub mig: Reading<MigMode>,
    /// Processes allowed to use the card.
    pub compute_mode: Reading<ComputeMode>,
    /// The card's access to system memory.
    pub addressing_mode: Reading<AddressingMode>,
    /// The NUMA node for the card's memory, on machines with such a node (Grace Hopper, Grace Blackwell). Not the
    /// node to which the card is attached: sysfs has the latter.
    pub memory_numa_node: Reading<u32>,
    /// The CPUs next to the card.
    pub cpu_affinity: Reading<CpuSet>,
    /// Its links, including links down; empty on cards without NVLink.
    pub links: Result<Vec<NvLinkReadings>, NvmlError>,
    /// The NVLink fabric of the card.
    pub fabric: Reading<Fabric>,
}
