//! NVLinks of a card.

use nvml_wrapper_sys::bindings::nvmlPciInfo_t;

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::{Out, characters};
use super::pci::pci_info;
use crate::failure::Failure;
use crate::machine::{Link, Remote};

/// `NVML_NVLINK_MAX_LINKS`
const MOST_LINKS: u32 = 18;

/// `nvmlIntNvLinkDeviceType_t`
mod remote_type {
    pub const GPU: u32 = 0;
    pub const SWITCH: u32 = 2;
}

/// The link with this number, and whether the link is up.
fn link(view: &CardView<'_>, number: u32) -> Result<(Link, bool), Failure> {
    if number >= MOST_LINKS {
        return Err(Failure::INVALID_ARGUMENT);
    }
    let link = *view.card.links.get(number as usize).ok_or(Failure::NOT_SUPPORTED)?;
    Ok((link, up(view, number)))
}

/// Whether a link is up: connected, not taken down, and no card at its ends in MIG mode.
pub(super) fn up(view: &CardView<'_>, number: u32) -> bool {
    let Some(link) = view.card.links.get(number as usize) else { return false };
    if view.state.mig.enabled || view.state.links_down.contains(&number) {
        return false;
    }
    match link.remote {
        None => false,
        Some(Remote::Switch { .. }) => true,
        Some(Remote::Card { index }) => {
            let state = view.context.state();
            let Some(other) = state.cards.get(index as usize) else { return false };
            // The same link has another number at the other card: the n-th link between the two.
            let position = between(view, view.card.index, index).position(|found| found == number);
            let theirs = position.and_then(|position| between(view, index, view.card.index).nth(position));
            !other.lost
                && !other.mig.enabled
                && theirs.is_none_or(|theirs| !other.links_down.contains(&theirs))
        }
    }
}

/// Numbers of the links from card `one` to card `other`.
fn between<'view>(view: &'view CardView<'_>, one: u32, other: u32) -> impl Iterator<Item = u32> + 'view {
    let links =
        view.context.machine().cards.get(one as usize).map(|card| card.links.as_slice()).unwrap_or_default();
    links
        .iter()
        .enumerate()
        .filter(move |(_, link)| matches!(link.remote, Some(Remote::Card { index }) if index == other))
        .map(|(number, _)| number as u32)
}

/// Whether at least one active link connects two cards, directly or through switches.
pub(super) fn up_between(one: &CardView<'_>, other: &CardView<'_>) -> bool {
    let direct = between(one, one.card.index, other.card.index).any(|number| up(one, number));
    let switched = |view: &CardView<'_>| {
        view.card.links.iter().enumerate().any(|(number, link)| {
            matches!(link.remote, Some(Remote::Switch { .. })) && up(view, number as u32)
        })
    };
    direct || (switched(one) && switched(other))
}

/// Whether the card has a link with this number.
pub(super) fn exists(view: &CardView<'_>, number: u32) -> Result<(), Failure> {
    link(view, number).map(|_| ())
}

/// Speed of a link, MB/s, if up.
pub(super) fn speed(view: &CardView<'_>, number: u32) -> Result<u32, Failure> {
    let (_, up) = link(view, number)?;
    if !up {
        return Ok(0);
    }
    let nvlink = view.context.machine().nvlink.as_ref().ok_or(Failure::NOT_SUPPORTED)?;
    nvlink.megabytes_per_second.ok_or(Failure::NOT_SUPPORTED)
}

/// Data carried by one or all links each way, KiB: made up, 1 MiB for each link, each second, and each percent of load of the
/// card.
pub(super) fn kibibytes(view: &CardView<'_>, scope: u32) -> Result<u64, Failure> {
    let links = match scope {
        u32::MAX => view.card.links.len() as u64,
        number => exists(view, number).map(|()| 1)?,
    };
    if links == 0 {
        return Err(Failure::NOT_SUPPORTED);
    }
    Ok(links * (view.meter().busy / 1_000_000) * 1024)
}

/// `nvmlNvlinkVersion_t` of a generation.
fn version(generation: u32) -> Option<u32> {
    match generation {
        1 => Some(1),
        2 => Some(2),
        3 => Some(4),
        4 => Some(6),
        5 => Some(7),
        _ => None,
    }
}

/// NVML's number of a card's link version.
pub(super) fn link_version(view: &CardView<'_>) -> Result<u32, Failure> {
    let nvlink = view.context.machine().nvlink.as_ref().ok_or(Failure::NOT_SUPPORTED)?;
    version(nvlink.generation).ok_or(Failure::NOT_SUPPORTED)
}

fn remote_pci(view: &CardView<'_>, number: u32) -> Result<nvmlPciInfo_t, Failure> {
    let (link, up) = link(view, number)?;
    if !up {
        return Err(Failure::NOT_SUPPORTED);
    }
    let machine = view.context.machine();
    match link.remote {
        Some(Remote::Card { index }) => {
            let other = machine.cards.get(index as usize).ok_or(Failure::UNKNOWN)?;
            let subsystem = other.board.pci_subsystem_id.map_or(0, |id| id.0);
            Ok(pci_info(other.pci, other.board.pci_device_id.0, subsystem))
        }
        Some(Remote::Switch { pci: Some(pci) }) => {
            let id = machine.nvlink.as_ref().and_then(|nvlink| nvlink.switch_pci_id).map_or(0, |id| id.0);
            Ok(pci_info(pci, id, 0))
        }
        // A switch invisible to the host has an address of all ones, by which NCCL's src/graph/xml.cc recognises
        // such switches.
        Some(Remote::Switch { pci: None }) => Ok(nvmlPciInfo_t {
            busIdLegacy: characters("FFFF:FFFF:FF.0"),
            domain: u32::MAX,
            bus: 0xffff,
            device: 0xff,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: characters("FFFFFFFF:FFFF:FF.0"),
        }),
        None => Err(Failure::NOT_SUPPORTED),
    }
}

/// `nvmlNvLinkCapability_t`: peer and system memory access and atomics, SLI bridge and validity of the link. No
/// board here has the bridge.
const CAPABILITIES: [u32; 6] = [1, 1, 1, 1, 0, 1];

nvml_functions! {
    /// `nvmlDeviceGetNvLinkState`
    fn nvmlDeviceGetNvLinkState(view: CardView, number: u32, active: Out<u32>) {
        let (_, up) = link(&view, number)?;
        active.set(up.into())
    }

    /// `nvmlDeviceGetNvLinkVersion`
    fn nvmlDeviceGetNvLinkVersion(view: CardView, number: u32, version: Out<u32>) {
        link(&view, number)?;
        version.set(link_version(&view)?)
    }

    /// `nvmlDeviceGetNvLinkCapability`
    fn nvmlDeviceGetNvLinkCapability(view: CardView, number: u32, capability: u32, result: Out<u32>) {
        link(&view, number)?;
        result.set(*CAPABILITIES.get(capability as usize).ok_or(Failure::INVALID_ARGUMENT)?)
    }

    /// `nvmlDeviceGetNvLinkRemotePciInfo`
    fn nvmlDeviceGetNvLinkRemotePciInfo(view: CardView, number: u32, info: Out<super::pci::PciInfoV2>) {
        info.set(super::pci::PciInfoV2::from(&remote_pci(&view, number)?))
    }

    /// `nvmlDeviceGetNvLinkRemotePciInfo_v2`
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(view: CardView, number: u32, info: Out<nvmlPciInfo_t>) {
        info.set(remote_pci(&view, number)?)
    }

    /// `nvmlDeviceGetNvLinkRemoteDeviceType`
    fn nvmlDeviceGetNvLinkRemoteDeviceType(view: CardView, number: u32, kind: Out<u32>) {
        let (link, up) = link(&view, number)?;
        match link.remote {
            Some(Remote::Card { .. }) if up => kind.set(remote_type::GPU),
            Some(Remote::Switch { .. }) if up => kind.set(remote_type::SWITCH),
            _ => Err(Failure::NOT_SUPPORTED),
        }
    }

    /// `nvmlDeviceGetNvLinkErrorCounter`: emulated links have no errors.
    fn nvmlDeviceGetNvLinkErrorCounter(view: CardView, number: u32, counter: u32, value: Out<u64>) {
        link(&view, number)?;
        if counter > 4 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        value.set(0)
    }

    /// `nvmlDeviceResetNvLinkErrorCounters`
    fn nvmlDeviceResetNvLinkErrorCounters(view: CardView, number: u32) {
        link(&view, number).map(|_| ())
    }
}
