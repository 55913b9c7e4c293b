use crate::{PciAddress, Reading};

/// One NVLink of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// Its number on the card, from 0.
    pub link: u32,
    /// Whether it is up (`nvmlDeviceGetNvLinkState`).
    pub active: bool,
    /// NVLink generation, 1 to 5 (`nvmlDeviceGetNvLinkVersion`); read of active links only.
    pub generation: Reading<u32>,
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

/// `nvmlNvlinkVersion_t` counts half versions too: 2.2 and 3.1 are the second and third generation.
pub(crate) fn generation_from_version(version: u32) -> Option<u32> {
    Some(match version {
        1 => 1,
        2 | 3 => 2,
        4 | 5 => 3,
        6 => 4,
        7 => 5,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    #[test]
    fn versions_are_those_of_the_header() {
        for (version, generation) in [
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_1_0, 1),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_0, 2),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_2, 2),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0, 3),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_1, 3),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0, 4),
            (sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_5_0, 5),
        ] {
            assert_eq!(generation_from_version(version), Some(generation));
        }
        assert_eq!(generation_from_version(0), None);
        assert_eq!(generation_from_version(99), None);
    }
}
