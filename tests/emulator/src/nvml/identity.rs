//! Which card is which: handles, names, UUIDs, PCI addresses.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings::{nvmlPciInfo_t, nvmlPciInfoExt_v1_t, nvmlUUID_v1_t};

use super::call::{Context, Device, Failure, Handle, Object, lookup, nvml_functions};
use super::ffi::{InText, Out, OutText, characters, check_version};
use crate::machine::{Card, Machine, PciAddress};
use crate::mig;
use crate::state::State;

/// `nvmlPciInfo_t.busId`
fn bus_id(pci: PciAddress) -> String {
    format!("{:08X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device)
}

/// `nvmlPciInfo_t.busIdLegacy`
fn bus_id_legacy(pci: PciAddress) -> String {
    format!("{:04X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device)
}

/// Reads `domain:bus:device.function` as leniently as the real library: the domain and the function may be left out,
/// numbers have any number of digits.
fn parse_bus_id(text: &str) -> Option<PciAddress> {
    let hexadecimal = |digits: &str| {
        let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let (text, function) = match text.split_once('.') {
        Some((text, function)) => (text, hexadecimal(function)?),
        None => (text, 0),
    };
    let parts: Vec<u32> = text.split(':').map(hexadecimal).collect::<Option<_>>()?;
    let (domain, bus, device) = match parts[..] {
        [bus, device] => (0, bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let (bus, device) = (u8::try_from(bus).ok()?, u8::try_from(device).ok()?);
    (function == 0).then_some(PciAddress { domain, bus, device })
}

fn find(machine: &Machine, fits: impl Fn(&Card) -> bool) -> Option<Object> {
    machine.cards.iter().find(|card| fits(card)).map(|card| Object::Card(card.index))
}

/// The card or MIG device whose UUID fits.
fn find_uuid(machine: &Machine, state: &State, fits: impl Fn(&str) -> bool) -> Result<Object, Failure> {
    if let Some(card) = find(machine, |card| fits(&card.uuid)) {
        return Ok(card);
    }
    for (card, state) in machine.cards.iter().zip(&state.cards) {
        let mut devices = state.mig.devices();
        if let Some((_, compute)) = devices.find(|(gpu, compute)| fits(&mig::uuid(card, gpu, compute))) {
            return Ok(Object::MigDevice(card.index, compute.serial));
        }
    }
    Err(Failure::NOT_FOUND)
}

fn by_index(function: &'static str, index: u32, device: Out<Handle>) -> u32 {
    let card = |machine: &Machine, _: &State| {
        (index < machine.cards.len() as u32).then_some(Object::Card(index)).ok_or(Failure::INVALID_ARGUMENT)
    };
    lookup(function, card, device)
}

fn by_text(
    function: &'static str,
    text: InText,
    device: Out<Handle>,
    fits: impl Fn(&Card, &str) -> bool,
) -> u32 {
    lookup(
        function,
        |machine, _| {
            let text = text.get()?;
            find(machine, |card| fits(card, text)).ok_or(Failure::NOT_FOUND)
        },
        device,
    )
}

fn by_bus_id(function: &'static str, text: InText, device: Out<Handle>) -> u32 {
    by_text(function, text, device, |card, text| parse_bus_id(text) == Some(card.pci))
}

fn by_uuid(function: &'static str, text: InText, device: Out<Handle>) -> u32 {
    lookup(
        function,
        |machine, state| {
            let text = text.get()?;
            find_uuid(machine, state, |uuid| uuid == text)
        },
        device,
    )
}

macro_rules! lookups {
    ($($(#[$attribute:meta])* fn $name:ident($key:ident: $type:ty) = $how:expr;)*) => {
        $(
            $(#[$attribute])*
            /// # Safety
            /// Pointers must be null or valid for what `nvml.h` says of them.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($key: $type, device: Out<Handle>) -> u32 {
                let how: fn(&'static str, $type, Out<Handle>) -> u32 = $how;
                how(stringify!($name), $key, device)
            }
        )*
    };
}

lookups! {
    /// `nvmlDeviceGetHandleByIndex`
    fn nvmlDeviceGetHandleByIndex(index: u32) = by_index;
    /// `nvmlDeviceGetHandleByIndex_v2`
    fn nvmlDeviceGetHandleByIndex_v2(index: u32) = by_index;
    /// `nvmlDeviceGetHandleByPciBusId`
    fn nvmlDeviceGetHandleByPciBusId(text: InText) = by_bus_id;
    /// `nvmlDeviceGetHandleByPciBusId_v2`
    fn nvmlDeviceGetHandleByPciBusId_v2(text: InText) = by_bus_id;
    /// `nvmlDeviceGetHandleByUUID`
    fn nvmlDeviceGetHandleByUUID(text: InText) = by_uuid;
    /// `nvmlDeviceGetHandleBySerial`
    fn nvmlDeviceGetHandleBySerial(text: InText) =
        |function, text, device| by_text(function, text, device, |card, text| card.serial == text);
    /// `nvmlDeviceGetHandleByUUIDV`
    fn nvmlDeviceGetHandleByUUIDV(uuid: Out<nvmlUUID_v1_t>) = by_versioned_uuid;
}

/// `nvmlUUIDType_t`: the UUID as text.
const UUID_ASCII: u32 = 1;
/// `nvmlUUIDType_t`: the UUID as 16 bytes.
const UUID_BINARY: u32 = 2;

fn by_versioned_uuid(function: &'static str, uuid: Out<nvmlUUID_v1_t>, device: Out<Handle>) -> u32 {
    lookup(
        function,
        |machine, state| {
            let uuid = uuid.get()?;
            check_version::<nvmlUUID_v1_t>(uuid.version, 1)?;
            let wanted = match uuid.type_ {
                UUID_ASCII => {
                    // SAFETY: every bit pattern is a valid array of characters.
                    let text = unsafe { uuid.value.str_ };
                    text.iter().map(|character| *character as u8).take_while(|byte| *byte != 0).collect()
                }
                UUID_BINARY => {
                    // SAFETY: every bit pattern is a valid array of bytes.
                    let bytes = unsafe { uuid.value.bytes };
                    return find_uuid(machine, state, |uuid| uuid_bytes(uuid) == bytes);
                }
                _ => return Err(Failure::INVALID_ARGUMENT),
            };
            let wanted = String::from_utf8(wanted).map_err(|_| Failure::NOT_FOUND)?;
            find_uuid(machine, state, |uuid| uuid == wanted)
        },
        device,
    )
}

/// The bytes of a UUID, whatever stands before its hexadecimal digits.
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

/// What `nvmlDeviceGetPciInfo` and `nvmlDeviceGetPciInfo_v2` fill: the longer bus id came with version 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfoV2 {
    bus_id: [c_char; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pci_device_id: u32,
    pci_subsystem_id: u32,
}

impl From<&nvmlPciInfo_t> for PciInfoV2 {
    fn from(info: &nvmlPciInfo_t) -> Self {
        PciInfoV2 {
            bus_id: info.busIdLegacy,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pci_device_id: info.pciDeviceId,
            pci_subsystem_id: info.pciSubSystemId,
        }
    }
}

fn pci_info_v2(card: &Card) -> PciInfoV2 {
    PciInfoV2 {
        bus_id: characters(&bus_id_legacy(card.pci)),
        domain: card.pci.domain,
        bus: card.pci.bus.into(),
        device: card.pci.device.into(),
        pci_device_id: card.board.pci_device_id.0,
        pci_subsystem_id: card.board.pci_subsystem_id.map_or(0, |id| id.0),
    }
}

/// `nvmlPciInfo_t` of a device that may be no card.
pub(super) fn pci_info(pci: PciAddress, device_id: u32, subsystem_id: u32) -> nvmlPciInfo_t {
    nvmlPciInfo_t {
        busIdLegacy: characters(&bus_id_legacy(pci)),
        domain: pci.domain,
        bus: pci.bus.into(),
        device: pci.device.into(),
        pciDeviceId: device_id,
        pciSubSystemId: subsystem_id,
        busId: characters(&bus_id(pci)),
    }
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

    /// `nvmlDeviceGetBoardId`: made of the PCI address, as captures show.
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

    /// `nvmlDeviceGetPciInfo`
    fn nvmlDeviceGetPciInfo(view: CardView, info: Out<PciInfoV2>) {
        info.set(pci_info_v2(view.card))
    }

    /// `nvmlDeviceGetPciInfo_v2`
    fn nvmlDeviceGetPciInfo_v2(view: CardView, info: Out<PciInfoV2>) {
        info.set(pci_info_v2(view.card))
    }

    /// `nvmlDeviceGetPciInfo_v3`
    fn nvmlDeviceGetPciInfo_v3(view: CardView, info: Out<nvmlPciInfo_t>) {
        let board = &view.card.board;
        info.set(pci_info(view.card.pci, board.pci_device_id.0, board.pci_subsystem_id.map_or(0, |id| id.0)))
    }

    /// `nvmlDeviceGetPciInfoExt`
    fn nvmlDeviceGetPciInfoExt(view: CardView, info: Out<nvmlPciInfoExt_v1_t>) {
        let version = info.get()?.version;
        check_version::<nvmlPciInfoExt_v1_t>(version, 1)?;
        let (pci, board) = (view.card.pci, &view.card.board);
        info.set(nvmlPciInfoExt_v1_t {
            version,
            domain: pci.domain,
            bus: pci.bus.into(),
            device: pci.device.into(),
            pciDeviceId: board.pci_device_id.0,
            pciSubSystemId: board.pci_subsystem_id.map_or(0, |id| id.0),
            // 3D controller, as captures show.
            baseClass: 3,
            subClass: 2,
            busId: characters(&bus_id(pci)),
        })
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
            Device::Card(_) => index.set(card.card.index),
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
/// Pointers must be null or valid for what `nvml.h` says of them.
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
/// Pointers must be null or valid for what `nvml.h` says of them.
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
    fn bus_ids_are_read_leniently() {
        let address = Some(PciAddress { domain: 0, bus: 0x3b, device: 0 });
        for text in ["00000000:3B:00.0", "0000:3b:00.0", "3b:00.0", "0:3B:0.0", "3B:00", "0000:3b:00"] {
            assert_eq!(parse_bus_id(text), address, "{text}");
        }
        for text in ["", "3b", "0000:3b:00.1", "x:3b:00.0", "1:2:3:4.0", "+1:02:03.0", "0000:1ff:00.0"] {
            assert_eq!(parse_bus_id(text), None, "{text}");
        }
    }

    #[test]
    fn a_uuid_is_its_digits() {
        assert_eq!(uuid_bytes("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")[..4], [0, 1, 2, 3]);
    }
}
