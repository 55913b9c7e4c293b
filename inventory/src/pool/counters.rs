//! Counter sets: what keeps whole, partitioned and shared use of one card apart, decided by the scheduler.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Counter, CounterSet, DeviceCounterConsumption};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tessera_api::{counter, limits};

use super::Warning;
use crate::machine::{Card, Mig};

/// The counter set of a card: one counter of 1 for each of its memory slices.
pub fn of_card(card: &Card, warnings: &mut Vec<Warning>) -> CounterSet {
    let slices = card.mig.as_ref().map_or(1, Mig::memory_slices).max(1);
    let slices = if usize::try_from(slices).is_ok_and(|slices| slices <= limits::COUNTERS_PER_SET) {
        slices
    } else {
        warnings.push(Warning::MemorySlices { card: card.pci, slices });
        1
    };
    let one = || Counter { value: Quantity("1".to_owned()) };
    let counters: BTreeMap<String, Counter> =
        (0..slices).map(|slice| (counter::memory_slice(slice), one())).collect();
    CounterSet { name: counter::set_name(card.pci), counters }
}

/// All of a set: what a whole card draws.
pub fn all_of(set: &CounterSet) -> DeviceCounterConsumption {
    DeviceCounterConsumption {
        counter_set: set.name.clone(),
        counters: set.counters.clone(),
        ..DeviceCounterConsumption::default()
    }
}

/// Whether `set` is the one that `consumption` draws on, and has what it draws.
pub fn covers(set: &CounterSet, consumption: &DeviceCounterConsumption) -> bool {
    let value = |counter: &Counter| counter.value.0.parse::<tessera_api::Quantity>().ok();
    set.name == consumption.counter_set
        && consumption.counters.iter().all(|(name, drawn)| {
            let available = set.counters.get(name).and_then(value);
            available.zip(value(drawn)).is_some_and(|(available, drawn)| drawn <= available)
        })
}
