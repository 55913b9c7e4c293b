//! Names of the attributes of published devices.
//!
//! Unqualified names live in the driver's domain: `device.attributes["gpu.tessera.dev"].productName`. Where NVIDIA's
//! driver or Kubernetes already named a thing, the name is theirs.

/// The GpuPool that decides the offer of the card; absent where no pool selects the card. A device held by a claim keeps
/// its earlier value (string).
pub const GPU_POOL: &str = "gpuPool";
/// Kind of device, see [`crate::DeviceType`] (string).
pub const TYPE: &str = "type";
/// NVML's UUID of the card, `GPU-…`; of a partition, `MIG-…` (string).
pub const UUID: &str = "uuid";
/// Position of the card in this boot's enumeration by NVML; shifts when a card falls off the bus (int).
pub const INDEX: &str = "index";
/// Marketing name, `NVIDIA H100 80GB HBM3` (string).
pub const PRODUCT_NAME: &str = "productName";
/// NVML's brand, `Nvidia`, `Tesla`, … (string).
pub const BRAND: &str = "brand";
/// Architecture, `Hopper` (string).
pub const ARCHITECTURE: &str = "architecture";
/// CUDA compute capability, `9.0.0` (version).
pub const CUDA_COMPUTE_CAPABILITY: &str = "cudaComputeCapability";
/// Version of the kernel driver, as a semantic version: 580.95.05 reads `580.95.5` (version).
pub const DRIVER_VERSION: &str = "driverVersion";
/// Newest CUDA version the driver supports, `13.0.0` (version).
pub const CUDA_DRIVER_VERSION: &str = "cudaDriverVersion";
/// How the card addresses the system's memory: `HMM` (the kernel keeps the card's page tables like the CPU's), `ATS` (the card
/// walks the CPU's), `None`; absent where the platform has no such modes (string).
pub const ADDRESSING_MODE: &str = "addressingMode";
/// Memory in MiB, rounded down, for selectors such as `memoryMiB >= 40000` (int).
pub const MEMORY_MIB: &str = "memoryMiB";
/// Whether the card can be partitioned by MIG (bool).
pub const MIG_CAPABLE: &str = "migCapable";
/// Whether the length of the card's time-slices can be set, `timeSlicing.interval` in configurations; on whole cards and on
/// devices shared by time (bool).
pub const TIME_SLICE_INTERVALS: &str = "timeSliceIntervals";
/// MIG profile of a partition, `1g.10gb` (string).
pub const PROFILE: &str = "profile";
/// Whether shares have multiprocessors of their own, closed to other shares; on devices shared by MPS (bool).
pub const STATIC_PARTITIONS: &str = "staticPartitions";
/// UUID of the card containing the partition or share (string).
pub const PARENT_UUID: &str = "parentUUID";
/// `<clusterUUID>.<cliqueId>` of the NVLink fabric; without a fabric, the lowest PCI address of the cards of this node
/// connected by NVLink. Absent on a card without NVLink (string).
pub const NVLINK_DOMAIN: &str = "nvlinkDomain";
/// Number of active NVLinks of the card (int).
pub const NVLINK_COUNT: &str = "nvlinkCount";
/// For `matchAttribute` of claims *requiring* NVLink: every two cards with one value have the machine's ideal NVLink
/// bandwidth between them. The value is the lowest PCI address of the group (string).
pub const NVLINK_GROUP_2: &str = "nvlinkGroup2";
/// As [`NVLINK_GROUP_2`] for every four cards (string).
pub const NVLINK_GROUP_4: &str = "nvlinkGroup4";
/// For *preferred* alignment: the best disjoint pairs of this machine, whatever connects them. The value is the lowest
/// PCI address of the group (string).
pub const ALIGN_GROUP_2: &str = "alignGroup2";
/// As [`ALIGN_GROUP_2`] for sets of four, each made of two of those pairs (string).
pub const ALIGN_GROUP_4: &str = "alignGroup4";

/// Kubernetes' standard attribute: PCI address, `0000:3b:00.0` (string).
pub const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
/// Kubernetes' standard attribute: PCIe root complex, `pci0000:3a` (string).
pub const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
/// Kubernetes' standard attribute: NUMA node as sysfs says; never −1 (int).
pub const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
