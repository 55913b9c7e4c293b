//! Names of counter sets and counters: what keeps the devices of one card from being handed out together.

use crate::{DeviceName, PciBusId};

/// The counter set that all devices of the card at `card` draw on. A DNS label.
#[must_use]
pub fn set_name(card: PciBusId) -> String {
    format!("{}-counter-set", DeviceName::Card(card))
}

/// Counter of one memory slice of a card, 0 to N−1; a card without MIG has one.
#[must_use]
pub fn memory_slice(number: u32) -> String {
    format!("memory-slice-{number}")
}
