//! One kind of card.

use serde::{Deserialize, Serialize};

/// Facts about one kind of card. Readings (temperature, power, clocks) are of an idle card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Board {
    /// Product name (`nvmlDeviceGetName`).
    pub name: String,
    /// Brand, in the words of `nvidia-smi -q` (`nvmlDeviceGetBrand`).
    pub brand: Brand,
    /// Architecture, in the words of `nvidia-smi -q`.
    pub architecture: Architecture,
    /// CUDA compute capability, `major.minor`.
    pub compute_capability: ComputeCapability,
    /// Device id in the upper half, vendor id in the lower (`nvmlPciInfo_t.pciDeviceId`).
    pub pci_device_id: PciId,
    /// Subsystem ids the same way; 0 is NVML's value for none.
    pub pci_subsystem_id: Option<PciId>,
    /// Whether the board can be partitioned.
    pub mig_capable: bool,
    /// How: name of a data file in `data/mig`.
    pub mig_model: Option<String>,
    /// Frame buffer, MiB (`nvmlDeviceGetMemoryInfo.total`).
    #[serde(rename = "memoryTotalMiB")]
    pub memory_total_mib: u64,
    /// Frame buffer reserved by the driver, MiB.
    #[serde(rename = "memoryReservedMiB")]
    pub memory_reserved_mib: Option<u64>,
    /// BAR1 aperture, MiB.
    #[serde(rename = "bar1TotalMiB")]
    pub bar1_total_mib: Option<u64>,
    /// Width of the memory bus, bits.
    pub memory_bus_width: Option<u32>,
    /// CUDA cores.
    pub cores: Option<u32>,
    /// Fans on the board; passive boards have none.
    pub fans: Option<u32>,
    /// VBIOS version.
    pub vbios_version: Option<String>,
    /// Board part number.
    pub board_part_number: Option<String>,
    /// GPU part number, as `nvidia-smi -q` prints it.
    pub gpu_part_number: Option<String>,
    /// InfoROM image version.
    pub inforom_image_version: Option<String>,
    /// InfoROM OEM object version.
    pub inforom_oem_version: Option<String>,
    /// InfoROM ECC object version.
    pub inforom_ecc_version: Option<String>,
    /// Newest PCIe generation of the board.
    pub pcie_generation_max: Option<u32>,
    /// PCIe lanes of the board.
    pub pcie_width_max: Option<u32>,
    /// Whether ECC is on; absent where the board has none.
    pub ecc_enabled: Option<bool>,
    /// Processes the accounting buffer holds.
    pub accounting_buffer_size: Option<u32>,
    /// How the card addresses system memory (`nvmlDeviceGetAddressingMode`).
    pub addressing_mode: Option<AddressingMode>,
    /// Whether the card's link to its CPU is on; absent without a link (`nvmlDeviceGetC2cModeInfoV`).
    pub c2c_enabled: Option<bool>,
    /// Temperature of the GPU, °C.
    pub temperature_celsius: Option<u32>,
    /// Temperature of the memory, °C.
    pub memory_temperature_celsius: Option<u32>,
    /// Distance to the GPU's slowdown temperature, °C (`nvmlDeviceGetMarginTemperature`).
    pub temperature_limit_margin_celsius: Option<i32>,
    /// Shutdown temperature of the card, °C.
    pub temperature_shutdown_celsius: Option<u32>,
    /// Slowdown temperature of the hardware, °C.
    pub temperature_slowdown_celsius: Option<u32>,
    /// Highest operating temperature of the GPU, °C.
    pub temperature_max_operating_celsius: Option<u32>,
    /// Highest operating temperature of the memory, °C.
    pub temperature_memory_max_celsius: Option<u32>,
    /// Power draw, mW.
    pub power_usage_milliwatts: Option<u32>,
    /// Default power limit, mW.
    pub power_limit_default_milliwatts: Option<u32>,
    /// Lowest settable power limit, mW.
    pub power_limit_min_milliwatts: Option<u32>,
    /// Highest settable power limit, mW.
    pub power_limit_max_milliwatts: Option<u32>,
    /// Clocks now.
    #[serde(rename = "clocksMHz")]
    pub clocks: Option<Clocks>,
    /// Highest clocks.
    #[serde(rename = "clocksMaxMHz")]
    pub clocks_max: Option<Clocks>,
    /// Applications clocks; absent where the driver calls them deprecated.
    #[serde(rename = "applicationsClocksMHz")]
    pub applications_clocks: Option<ApplicationsClocks>,
    /// Memory banks whose rows can be remapped; absent where the board has no row remapper.
    pub remapped_row_banks: Option<u32>,
}

/// Clocks in MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// Graphics engine.
    pub graphics: u32,
    /// Streaming multiprocessors.
    pub sm: u32,
    /// Memory.
    pub memory: u32,
    /// Video engine.
    pub video: u32,
}

/// Applications clocks in MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationsClocks {
    /// Graphics engine.
    pub graphics: u32,
    /// Memory.
    pub memory: u32,
}

/// Brand of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Brand {
    /// `NVML_BRAND_QUADRO`
    Quadro,
    /// `NVML_BRAND_TESLA`
    Tesla,
    /// `NVML_BRAND_QUADRO_RTX`
    #[serde(rename = "Quadro RTX")]
    QuadroRtx,
    /// `NVML_BRAND_NVIDIA_RTX`
    #[serde(rename = "NVIDIA RTX")]
    NvidiaRtx,
    /// `NVML_BRAND_NVIDIA`
    #[serde(rename = "NVIDIA")]
    Nvidia,
}

impl Brand {
    const ALL: [(Brand, &str); 5] = [
        (Brand::Quadro, "Quadro"),
        (Brand::Tesla, "Tesla"),
        (Brand::QuadroRtx, "Quadro RTX"),
        (Brand::NvidiaRtx, "NVIDIA RTX"),
        (Brand::Nvidia, "NVIDIA"),
    ];

    /// The brand with this `nvmlBrandType_t`.
    pub fn from_nvml(number: u32) -> Option<Self> {
        Self::ALL.iter().map(|(brand, _)| *brand).find(|brand| brand.nvml() == number)
    }

    /// In the words of `nvidia-smi -q`.
    pub fn text(self) -> &'static str {
        Self::ALL.iter().find(|(brand, _)| *brand == self).map_or("Unknown", |(_, text)| text)
    }

    /// `nvmlBrandType_t`.
    pub fn nvml(self) -> u32 {
        match self {
            Brand::Quadro => 1,
            Brand::Tesla => 2,
            Brand::QuadroRtx => 12,
            Brand::NvidiaRtx => 13,
            Brand::Nvidia => 14,
        }
    }
}

/// Architecture of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Architecture {
    /// Pascal.
    Pascal,
    /// Volta.
    Volta,
    /// Turing.
    Turing,
    /// Ampere.
    Ampere,
    /// Ada Lovelace.
    #[serde(rename = "Ada Lovelace")]
    Ada,
    /// Hopper.
    Hopper,
    /// Blackwell.
    Blackwell,
}

impl Architecture {
    const ALL: [(Architecture, &str); 7] = [
        (Architecture::Pascal, "Pascal"),
        (Architecture::Volta, "Volta"),
        (Architecture::Turing, "Turing"),
        (Architecture::Ampere, "Ampere"),
        (Architecture::Ada, "Ada Lovelace"),
        (Architecture::Hopper, "Hopper"),
        (Architecture::Blackwell, "Blackwell"),
    ];

    /// The architecture with this `nvmlDeviceArchitecture_t`.
    pub fn from_nvml(number: u32) -> Option<Self> {
        Self::ALL.iter().map(|(architecture, _)| *architecture).find(|it| it.nvml() == number)
    }

    /// In the words of `nvidia-smi -q`.
    pub fn text(self) -> &'static str {
        Self::ALL.iter().find(|(architecture, _)| *architecture == self).map_or("Unknown", |(_, text)| text)
    }

    /// `nvmlDeviceArchitecture_t`.
    pub fn nvml(self) -> u32 {
        match self {
            Architecture::Pascal => 4,
            Architecture::Volta => 5,
            Architecture::Turing => 6,
            Architecture::Ampere => 7,
            Architecture::Ada => 8,
            Architecture::Hopper => 9,
            Architecture::Blackwell => 10,
        }
    }

    /// Generation of NVLink introduced by the architecture (NVIDIA NVLink product page); absent on Ada, which has none.
    pub fn nvlink_generation(self) -> Option<u32> {
        match self {
            Architecture::Pascal => Some(1),
            Architecture::Volta | Architecture::Turing => Some(2),
            Architecture::Ampere => Some(3),
            Architecture::Ada => None,
            Architecture::Hopper => Some(4),
            Architecture::Blackwell => Some(5),
        }
    }
}

/// How a card addresses system memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressingMode {
    /// Only through explicit mappings.
    None,
    /// Software heterogeneous memory management.
    #[serde(rename = "HMM")]
    Hmm,
    /// Address translation services of the hardware.
    #[serde(rename = "ATS")]
    Ats,
}

/// CUDA compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// Major version.
    pub major: i32,
    /// Minor version.
    pub minor: i32,
}

impl TryFrom<String> for ComputeCapability {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(ComputeCapability { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse().ok_or_else(|| format!("{text:?} is not major.minor"))
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> String {
        format!("{}.{}", capability.major, capability.minor)
    }
}

/// A device id in the upper 16 bits and a vendor id in the lower, as NVML packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciId(pub u32);

impl PciId {
    /// Device id.
    pub fn device(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Vendor id.
    pub fn vendor(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

impl TryFrom<String> for PciId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .map(PciId)
            .ok_or_else(|| format!("{text:?} is not a PCI id such as 0x233010DE"))
    }
}

impl From<PciId> for String {
    fn from(id: PciId) -> String {
        format!("0x{:08X}", id.0)
    }
}
