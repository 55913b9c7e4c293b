use serde::{Deserialize, Serialize};

use crate::pci_bus_id::PciBusId;

/// One active NVLink of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLink {
    /// The device at its other end.
    pub remote: NvLinkRemote,
    /// Its generation (`nvmlDeviceGetNvLinkVersion`).
    pub version: Option<NvLinkVersion>,
}

/// The remote end of an NVLink (`nvmlDeviceGetNvLinkRemoteDeviceType`, `nvmlDeviceGetNvLinkRemotePciInfo_v2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NvLinkRemote {
    /// Another card.
    Gpu(PciBusId),
    /// An NVSwitch.
    Switch,
    /// Something else (a CPU), or unknown.
    Other,
}

/// Generation of an NVLink (`nvmlNvlinkVersion_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NvLinkVersion {
    /// 1.0, Pascal.
    V1_0,
    /// 2.0, Volta.
    V2_0,
    /// 2.2, Turing.
    V2_2,
    /// 3.0, Ampere.
    V3_0,
    /// 3.1, Ampere.
    V3_1,
    /// 4.0, Hopper.
    V4_0,
    /// 5.0, Blackwell.
    V5_0,
}

impl NvLinkVersion {
    /// From NVML's number, 1 (1.0) to 7 (5.0); `None` for "invalid" and for later generations.
    #[must_use]
    pub const fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::V1_0,
            2 => Self::V2_0,
            3 => Self::V2_2,
            4 => Self::V3_0,
            5 => Self::V3_1,
            6 => Self::V4_0,
            7 => Self::V5_0,
            _ => return None,
        })
    }

    /// Bandwidth of one link in one direction, as `nvidia-smi nvlink --status` prints the rate, in MB/s.
    #[must_use]
    pub const fn megabytes_per_second(self) -> u32 {
        match self {
            Self::V1_0 => 20_000,
            Self::V2_0 | Self::V2_2 => 25_000,
            Self::V3_0 | Self::V3_1 => 25_781,
            Self::V4_0 => 26_562,
            Self::V5_0 => 53_125,
        }
    }
}
