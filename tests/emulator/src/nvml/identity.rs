//! A card's identity: names, UUIDs, versions and numbers.

use super::call::nvml_functions;
use super::context::{Context, Device};
use super::ffi::{Out, OutText};
use super::handle::Handle;
use crate::failure::Failure;
use crate::machine::Card;
use crate::mig;

/// The bytes of a UUID, with or without the prefix `GPU-` or `MIG-`.
pub(super) fn uuid_bytes(text: &str) -> [u8; 16] {
    let text = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or(text);
    let mut bytes = [0; 16];
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4) | pair[1];
    }
    bytes
}

nvml_functions! {
    /// `nvmlDeviceGetBrand`
    fn nvmlDeviceGetBrand(view: CardView, brand: Out<u32>) {
        brand.set(view.card.board.brand.nvml())
    }

    /// `nvmlDeviceGetMinorNumber`
    fn nvmlDeviceGetMinorNumber(view: CardView, minor: Out<u32>) {
        minor.set(view.card.minor)
    }

    /// `nvmlDeviceGetModuleId`
    fn nvmlDeviceGetModuleId(view: CardView, module: Out<u32>) {
        module.set(view.card.module_id.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetSerial`
    fn nvmlDeviceGetSerial(view: CardView, serial: OutText, length: u32) {
        serial.set(length, &view.card.serial)
    }

    /// `nvmlDeviceGetBoardPartNumber`
    fn nvmlDeviceGetBoardPartNumber(view: CardView, number: OutText, length: u32) {
        number.set(length, view.card.board.board_part_number.as_deref().ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetVbiosVersion`
    fn nvmlDeviceGetVbiosVersion(view: CardView, version: OutText, length: u32) {
        version.set(length, view.card.board.vbios_version.as_deref().ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetInforomImageVersion`
    fn nvmlDeviceGetInforomImageVersion(view: CardView, version: OutText, length: u32) {
        version.set(length, view.card.board.inforom_image_version.as_deref().ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetInforomVersion`
    fn nvmlDeviceGetInforomVersion(view: CardView, object: u32, version: OutText, length: u32) {
        let board = &view.card.board;
        let text = match object {
            0 => &board.inforom_oem_version,
            1 => &board.inforom_ecc_version,
            2 | 3 => &None,
            _ => return Err(Failure::INVALID_ARGUMENT),
        };
        version.set(length, text.as_deref().ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetBoardId`: derived from the PCI address, as in captures.
    fn nvmlDeviceGetBoardId(view: CardView, board: Out<u32>) {
        let pci = view.card.pci;
        board.set((pci.domain << 16) | (u32::from(pci.bus) << 8) | u32::from(pci.device))
    }

    /// `nvmlDeviceGetMultiGpuBoard`
    fn nvmlDeviceGetMultiGpuBoard(_view: CardView, multiple: Out<u32>) {
        multiple.set(0)
    }

    /// `nvmlDeviceGetArchitecture`
    fn nvmlDeviceGetArchitecture(view: CardView, architecture: Out<u32>) {
        architecture.set(view.card.board.architecture.nvml())
    }

    /// `nvmlDeviceGetCudaComputeCapability`
    fn nvmlDeviceGetCudaComputeCapability(view: CardView, major: Out<i32>, minor: Out<i32>) {
        let capability = view.card.board.compute_capability;
        if minor.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        major.set(capability.major)?;
        minor.set(capability.minor)
    }
}

nvml_functions! {
    /// `nvmlDeviceGetName`
    fn nvmlDeviceGetName(device: Device, name: OutText, length: u32) {
        match device {
            Device::Card(view) => name.set(length, &view.card.board.name),
            Device::Mig(view) => {
                let partition = mig::compute::name(view.gpu.profile, view.instance.size);
                name.set(length, &format!("{} MIG {partition}", view.gpu.view.card.board.name))
            }
        }
    }

    /// `nvmlDeviceGetUUID`
    fn nvmlDeviceGetUUID(device: Device, uuid: OutText, length: u32) {
        match device {
            Device::Card(view) => uuid.set(length, &view.card.uuid),
            Device::Mig(view) => {
                uuid.set(length, &mig::uuid(view.gpu.view.card, view.gpu.instance, view.instance))
            }
        }
    }

    /// `nvmlDeviceGetIndex`
    fn nvmlDeviceGetIndex(device: Device, index: Out<u32>) {
        let card = device.card();
        match device {
            Device::Card(_) => {
                let before = |other: &&Card| other.index < card.card.index;
                index.set(card.context.machine().present().filter(before).count() as u32)
            }
            Device::Mig(view) => {
                let mut devices = card.state.mig.devices();
                let position = devices.position(|(_, compute)| compute.serial == view.instance.serial);
                index.set(position.ok_or(Failure::UNKNOWN)? as u32)
            }
        }
    }
}

/// `nvmlDeviceOnSameBoard`: no board here has two cards.
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceOnSameBoard(one: Handle, other: Handle, same: Out<i32>) -> u32 {
    super::call::device("nvmlDeviceOnSameBoard", one, |view| {
        let other = view.context.handle(other)?;
        same.set((other.card.index == view.card.index).into())
    })
}

/// `nvmlGetExcludedDeviceInfoByIndex`: there are none.
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGetExcludedDeviceInfoByIndex(_index: u32, _info: Out<u32>) -> u32 {
    super::call::system("nvmlGetExcludedDeviceInfoByIndex", |_context: &Context| {
        Err(Failure::INVALID_ARGUMENT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_digits() {
        assert_eq!(uuid_bytes("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")[..4], [0, 1, 2, 3]);
    }
}
