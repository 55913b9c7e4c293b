use nvml_wrapper_sys::bindings as sys;
use tessera_api::facts::{NvLinkRemote, NvLinkVersion};

use super::functions::{Functions, Handle};
use crate::error::NvmlError;
use crate::nvlink::NvLinkReadings;

/// More than any known or announced card has; bounds the search.
const MOST_LINKS: u32 = 64;

/// Reads every link of a card. NVML has no query for their number and only refuses the others, and a card may lack one in the
/// middle.
pub(super) fn read(functions: &Functions, handle: Handle) -> Result<Vec<NvLinkReadings>, NvmlError> {
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        match functions.link_state(handle, link) {
            Ok(active) => links.push(read_link(functions, handle, link, active)),
            Err(error) if is_no_link(&error) && link + 1 < sys::NVML_NVLINK_MAX_LINKS => {}
            Err(error) if is_no_link(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

fn is_no_link(error: &NvmlError) -> bool {
    let invalid = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    error.is_unsupported() || matches!(error, NvmlError::Call { code, .. } if *code == invalid)
}

fn read_link(functions: &Functions, handle: Handle, link: u32, active: bool) -> NvLinkReadings {
    if !active {
        return NvLinkReadings {
            link,
            active,
            version: Ok(None),
            megabytes_per_second: Ok(None),
            remote: Ok(None),
        };
    }
    let version = functions.link_version(handle, link).map(NvLinkVersion::from_nvml);
    NvLinkReadings {
        link,
        active,
        version: NvmlError::reading(version).map(Option::flatten),
        megabytes_per_second: NvmlError::reading(functions.link_speed(handle, link)),
        remote: NvmlError::reading(remote(functions, handle, link)),
    }
}

fn remote(functions: &Functions, handle: Handle, link: u32) -> Result<NvLinkRemote, NvmlError> {
    match functions.link_remote_type(handle, link)? {
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => {
            let address = functions.link_remote_address(handle, link)?;
            Ok(address.map_or(NvLinkRemote::Other, NvLinkRemote::Gpu))
        }
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => Ok(NvLinkRemote::Switch),
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU
        | sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN => Ok(NvLinkRemote::Other),
        number => Err(NvmlError::Nonsense {
            function: "nvmlDeviceGetNvLinkRemoteDeviceType",
            value: number.to_string(),
        }),
    }
}
