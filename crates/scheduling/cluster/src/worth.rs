//! What devices are worth: their part of a card, and memory.

use std::iter::Sum;
use std::ops::{AddAssign, SubAssign};

use tessera_allocator::held::DeviceHold;
use tessera_allocator::inventory::DeviceRef;
use tessera_allocator::placement::Pick;
use tessera_api::{DeviceName, attribute, capacity, counter};
use tessera_cel::{AttributeValue, DeviceView as _};

/// A whole card, in the unit of [`Worth::cards`].
pub const CARD: u64 = 1_000_000;

const BILLION: i128 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// What devices are worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Worth {
    /// Millionths of a card, rounded down: of a partition by memory slices, of a share by the capacity with the largest taken
    /// fraction.
    pub cards: u64,
    /// Bytes, in the same proportion to the device's memory.
    pub memory: u64,
}

impl Worth {
    /// Worth of a device missing from the inventory: a whole card of unknown memory.
    pub const UNKNOWN: Worth = Worth { cards: CARD, memory: 0 };

    /// Worth of the whole device.
    #[must_use]
    pub fn of_whole(device: DeviceRef<'_>) -> Self {
        Worth { cards: part_of_card(device), memory: memory(device) }
    }

    /// Worth of a share of the device; `taken`: the amount of a capacity, in billionths.
    #[must_use]
    pub fn of_share(device: DeviceRef<'_>, taken: impl Fn(&str) -> i128 + Copy) -> Self {
        let (cards, memory) = (part_of_card(device), memory(device));
        let part =
            |of_device: u64| u64::try_from(of_share(device, of_device.into(), taken)).unwrap_or_default();
        Worth { cards: part(cards), memory: part(memory) }
    }

    /// Worth of a device held like this.
    #[must_use]
    pub fn of_hold(device: DeviceRef<'_>, hold: &DeviceHold) -> Self {
        if hold.is_share() {
            Self::of_share(device, |name| hold.consumed(name).unwrap_or(0))
        } else {
            Self::of_whole(device)
        }
    }

    /// Worth of a picked device.
    #[must_use]
    pub fn of_pick(pick: &Pick<'_>) -> Self {
        match pick.device.is_shareable() {
            _ if pick.has_admin_access => Worth::default(),
            true => Self::of_share(pick.device, |name| pick.consumed(name).unwrap_or(0)),
            false => Self::of_whole(pick.device),
        }
    }
}

impl Sum for Worth {
    fn sum<I: Iterator<Item = Worth>>(all: I) -> Worth {
        all.fold(Worth::default(), |mut sum, worth| {
            sum += worth;
            sum
        })
    }
}

impl AddAssign for Worth {
    fn add_assign(&mut self, other: Worth) {
        self.cards = self.cards.saturating_add(other.cards);
        self.memory = self.memory.saturating_add(other.memory);
    }
}

impl SubAssign for Worth {
    fn sub_assign(&mut self, other: Worth) {
        self.cards = self.cards.saturating_sub(other.cards);
        self.memory = self.memory.saturating_sub(other.memory);
    }
}

/// Memory slices of the card taken by a device, as bits. A card without counters has one.
#[must_use]
pub fn slices(device: DeviceRef<'_>, name: &DeviceName) -> u64 {
    let slices = bits(device.counters().map(|(_, counter, _)| counter));
    if slices == 0 && name.partition().is_none() { 1 } else { slices }
}

/// Part of a number for shares of a device, by the capacity with the largest taken fraction; `taken` in billionths, by name.
/// `of_device`: the number for the whole device, also the result for a device without such a capacity.
#[must_use]
pub fn of_share(device: DeviceRef<'_>, of_device: i128, taken: impl Fn(&str) -> i128) -> i128 {
    let part = |name: &str| {
        let capacity = device.capacity(name).filter(|capacity| *capacity > 0)?;
        Some(taken(name).clamp(0, capacity).saturating_mul(of_device) / capacity)
    };
    [capacity::MEMORY, capacity::COMPUTE, capacity::SLOTS]
        .into_iter()
        .filter_map(part)
        .max()
        .unwrap_or(of_device)
}

/// The bits of the memory slices among these counters.
fn bits<'c>(counters: impl Iterator<Item = &'c str>) -> u64 {
    counters.filter_map(counter::memory_slice_number).fold(0, |slices, number| slices | 1 << number.min(63))
}

/// Millionths of the card for the whole device.
fn part_of_card(device: DeviceRef<'_>) -> u64 {
    let own = bits(device.counters().map(|(_, counter, _)| counter)).count_ones();
    let set = device.counters().find(|(_, counter, _)| counter::memory_slice_number(counter).is_some());
    let all = set.map_or(0, |(set, ..)| bits(device.counters_of_set(set)).count_ones());
    // A card without counters is offered whole.
    if own == 0 || all == 0 { CARD } else { CARD * u64::from(own.min(all)) / u64::from(all) }
}

/// Bytes of the whole device.
fn memory(device: DeviceRef<'_>) -> u64 {
    if let Some(nanos) = device.capacity(capacity::MEMORY) {
        return u64::try_from(nanos / BILLION).unwrap_or_default();
    }
    match device.attribute(device.driver_name(), attribute::MEMORY_MIB) {
        Some(AttributeValue::Int(mib)) => u64::try_from(mib).unwrap_or_default().saturating_mul(MIB),
        _ => 0,
    }
}
