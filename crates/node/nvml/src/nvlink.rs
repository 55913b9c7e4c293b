use tessera_api::facts::{NvLinkRemote, NvLinkVersion};

use crate::error::Reading;

/// One NVLink of a card: the driver's answer to each question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvLinkReadings {
    /// Its number on the card, from 0.
    pub link: u32,
    /// Whether the link is up (`nvmlDeviceGetNvLinkState`).
    pub active: bool,
    /// Its generation (`nvmlDeviceGetNvLinkVersion`); read of active links only. `None` for a generation newer than
    /// this program.
    pub version: Reading<NvLinkVersion>,
    /// Megabytes a second in one direction (`NVML_FI_DEV_NVLINK_GET_SPEED` and its predecessors); read of active links only.
    pub megabytes_per_second: Reading<u64>,
    /// The device at the other end (`nvmlDeviceGetNvLinkRemoteDeviceType`, `nvmlDeviceGetNvLinkRemotePciInfo_v2`); read of
    /// active links only.
    pub remote: Reading<NvLinkRemote>,
}
