//! PCI addresses of cards.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings::{nvmlPciInfo_t, nvmlPciInfoExt_v1_t};

use super::call::nvml_functions;
use super::ffi::{Out, characters, check_version};
use crate::machine::{Card, PciAddress};

/// `nvmlPciInfo_t.busId`
fn bus_id(pci: PciAddress) -> String {
    format!("{:08X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device)
}

/// `nvmlPciInfo_t.busIdLegacy`
fn bus_id_legacy(pci: PciAddress) -> String {
    format!("{:04X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device)
}

/// Reads `domain:bus:device.function` as leniently as the real library: domain and function are optional, numbers
/// have any number of digits.
pub(super) fn parse_bus_id(text: &str) -> Option<PciAddress> {
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

/// Struct of `nvmlDeviceGetPciInfo` and `nvmlDeviceGetPciInfo_v2`: the longer bus id came with version 3.
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

/// `nvmlPciInfo_t` of any device, for example a switch.
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
}
