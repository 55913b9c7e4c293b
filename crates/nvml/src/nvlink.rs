use crate::{PciAddress, Reading};

/// One NVLink of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// Its number on the card, from 0.
    pub link: u32,
    /// Whether it is up (`nvmlDeviceGetNvLinkState`).
    pub active: bool,
    /// `nvmlNvlinkVersion_t`, which is no version number: 1 is NVLink 1.0, 2 2.0, 3 2.2, 4 3.0, 5 3.1, 6 4.0, 7 5.0
    /// (`nvmlDeviceGetNvLinkVersion`); read of active links only.
    pub version: Reading<u32>,
    /// Megabytes a second and direction (`NVML_FI_DEV_NVLINK_GET_SPEED` and its predecessors); read of active links only.
    pub megabytes_per_second: Reading<u64>,
    /// What is at the other end (`nvmlDeviceGetNvLinkRemoteDeviceType`); read of active links only.
    pub remote_type: Reading<NvLinkRemote>,
    /// Where the other end is (`nvmlDeviceGetNvLinkRemotePciInfo_v2`); read of active links only. `None` where the driver
    /// doesn't say, as for switches outside the machine.
    pub remote_address: Reading<PciAddress>,
}

/// What an NVLink leads to (`nvmlIntNvLinkDeviceType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NvLinkRemote {
    /// Another card.
    Gpu,
    /// An IBM POWER processor.
    Npu,
    /// An NVSwitch.
    Switch,
}

impl NvLinkRemote {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => NvLinkRemote::Gpu,
            1 => NvLinkRemote::Npu,
            2 => NvLinkRemote::Switch,
            _ => return None,
        })
    }
}
