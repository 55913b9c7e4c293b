//! Opaque handles: `nvmlDevice_t`, `nvmlGpuInstance_t` and `nvmlComputeInstance_t`.

use crate::failure::Failure;

/// An opaque object of the library.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(*mut std::ffi::c_void);

/// Objects with a handle. Instances have serial numbers, so the handle of a destroyed instance is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// `nvmlDevice_t` of a card.
    Card(u32),
    /// `nvmlDevice_t` of a MIG device, by the number of its compute instance.
    MigDevice(u32, u64),
    /// `nvmlGpuInstance_t`.
    GpuInstance(u32, u64),
    /// `nvmlComputeInstance_t`.
    ComputeInstance(u32, u64),
}

/// Base of cards' handles, so no small number and no real address is taken for a card.
const HANDLE_BASE: usize = 0x4e56_4d4c_0000;
/// Distance of two handles, as if each were an object.
const HANDLE_STEP: usize = 64;

/// Bits of the handle of an instance: its kind, its serial number, its card, and four unused ones.
const KIND: u32 = 44;
const SERIAL: u32 = 10;
const CARD: u32 = 4;
const MIG_DEVICE: usize = 1;
const GPU_INSTANCE: usize = 2;
const COMPUTE_INSTANCE: usize = 3;

const _: () = assert!(crate::machine::build::MOST_CARDS <= 1 << (SERIAL - CARD));

impl Handle {
    /// The handle of a card.
    pub fn of(index: u32) -> Self {
        Handle(std::ptr::without_provenance_mut(HANDLE_BASE + HANDLE_STEP * index as usize))
    }

    /// The handle of anything.
    pub fn to(object: Object) -> Self {
        let (kind, card, serial) = match object {
            Object::Card(index) => return Handle::of(index),
            Object::MigDevice(card, serial) => (MIG_DEVICE, card, serial),
            Object::GpuInstance(card, serial) => (GPU_INSTANCE, card, serial),
            Object::ComputeInstance(card, serial) => (COMPUTE_INSTANCE, card, serial),
        };
        let serial = serial as usize & ((1 << (KIND - SERIAL)) - 1);
        Handle(std::ptr::without_provenance_mut(kind << KIND | serial << SERIAL | (card as usize) << CARD))
    }

    /// The pointer for C.
    pub fn raw(self) -> *mut std::ffi::c_void {
        self.0
    }

    /// The handle's object, on a machine with `cards` cards.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] for an invalid handle.
    pub fn object(self, cards: usize) -> Result<Object, Failure> {
        let address = self.0.addr();
        if let Some(offset) = address.checked_sub(HANDLE_BASE) {
            let index = offset / HANDLE_STEP;
            if offset % HANDLE_STEP != 0 || index >= cards {
                return Err(Failure::INVALID_ARGUMENT);
            }
            return u32::try_from(index).map(Object::Card).map_err(|_| Failure::INVALID_ARGUMENT);
        }
        let card = (address & ((1 << SERIAL) - 1)) >> CARD;
        let serial = (address & ((1 << KIND) - 1)) >> SERIAL;
        if address & ((1 << CARD) - 1) != 0 || card >= cards || serial == 0 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let (card, serial) = (card as u32, serial as u64);
        match address >> KIND {
            MIG_DEVICE => Ok(Object::MigDevice(card, serial)),
            GPU_INSTANCE => Ok(Object::GpuInstance(card, serial)),
            COMPUTE_INSTANCE => Ok(Object::ComputeInstance(card, serial)),
            _ => Err(Failure::INVALID_ARGUMENT),
        }
    }

    /// Index of the handle's card, or of its instance's card.
    ///
    /// # Errors
    /// [`Failure::INVALID_ARGUMENT`] for an invalid handle.
    pub fn index(self, cards: usize) -> Result<u32, Failure> {
        match self.object(cards)? {
            Object::Card(card)
            | Object::MigDevice(card, _)
            | Object::GpuInstance(card, _)
            | Object::ComputeInstance(card, _) => Ok(card),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(address: usize) -> Handle {
        Handle(std::ptr::without_provenance_mut(address))
    }

    #[test]
    fn only_our_handles_name_something() {
        assert_eq!(Handle::of(3).index(4), Ok(3));
        for wrong in [Handle::of(4), handle(0), handle(HANDLE_BASE + 1), handle(64), handle(usize::MAX)] {
            assert_eq!(wrong.object(4), Err(Failure::INVALID_ARGUMENT), "{wrong:?}");
        }
    }

    #[test]
    fn a_handle_names_what_it_was_made_of() {
        for card in [0, 63] {
            for serial in [1, 2, 1 << 33] {
                for object in [
                    Object::Card(card),
                    Object::MigDevice(card, serial),
                    Object::GpuInstance(card, serial),
                    Object::ComputeInstance(card, serial),
                ] {
                    assert_eq!(Handle::to(object).object(64), Ok(object));
                    assert_eq!(Handle::to(object).index(64), Ok(card));
                    assert_eq!(Handle::to(object).object(card as usize), Err(Failure::INVALID_ARGUMENT));
                }
            }
        }
    }
}
