use nvml_wrapper_sys::bindings as sys;

use super::functions::{Functions, Handle};
use super::named;
use crate::{NvLink, NvLinkRemote, NvmlError};

/// More than any card has or is announced to have; bounds the search.
const MOST_LINKS: u32 = 64;

/// Reads every link of a card. NVML says how many there are only by refusing the others, and a card may lack one in the
/// middle.
pub(super) fn read(functions: &Functions, handle: Handle) -> Result<Vec<NvLink>, NvmlError> {
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

fn read_link(functions: &Functions, handle: Handle, link: u32, active: bool) -> NvLink {
    if !active {
        return NvLink {
            link,
            active,
            version: Ok(None),
            megabytes_per_second: Ok(None),
            remote_type: Ok(None),
            remote_address: Ok(None),
        };
    }
    let remote_type = functions.link_remote_type(handle, link).and_then(|number| match number {
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN => Ok(None),
        number => named("nvmlDeviceGetNvLinkRemoteDeviceType", number, NvLinkRemote::from_number).map(Some),
    });
    NvLink {
        link,
        active,
        version: NvmlError::reading(functions.link_version(handle, link)),
        megabytes_per_second: NvmlError::reading(functions.link_speed(handle, link)),
        remote_type: flat(remote_type),
        remote_address: flat(functions.link_remote_address(handle, link)),
    }
}

fn flat<T>(answer: Result<Option<T>, NvmlError>) -> Result<Option<T>, NvmlError> {
    NvmlError::reading(answer).map(Option::flatten)
}
