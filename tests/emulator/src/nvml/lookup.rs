//! The handle of a card or MIG device by index, UUID, serial number or PCI address.

use nvml_wrapper_sys::bindings::nvmlUUID_v1_t;

use super::call::lookup;
use super::ffi::{InText, Out, check_version};
use super::handle::{Handle, Object};
use super::identity::uuid_bytes;
use super::pci::parse_bus_id;
use crate::failure::Failure;
use crate::machine::{Card, Machine};
use crate::mig;
use crate::state::State;

fn find(machine: &Machine, fits: impl Fn(&Card) -> bool) -> Option<Object> {
    machine.present().find(|card| fits(card)).map(|card| Object::Card(card.index))
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
        let card = machine.present().nth(index as usize).ok_or(Failure::INVALID_ARGUMENT)?;
        Ok(Object::Card(card.index))
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
            /// Pointers must be null or valid as `nvml.h` requires.
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
