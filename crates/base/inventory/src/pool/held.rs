use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCounterConsumption};
use tessera_api::{DeviceName, PciBusId, attribute};

use super::{PoolOptions, Slice, counters, taints};
use crate::machine::Card;
use crate::warning::Warning;

/// Devices held by allocated or prepared claims, with the counter sets they draw on, as last published.
///
/// They stay published whatever happens to their card: removing one would free its counters during use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    devices: BTreeMap<String, Device>,
    counter_sets: BTreeMap<String, CounterSet>,
}

impl Held {
    /// Selects the devices for which `is_held` is true, by device name, from the last publication: the slices of
    /// this driver's pool on this node, of the newest generation.
    #[must_use]
    pub fn new(published: &[Slice], is_held: impl Fn(&str) -> bool) -> Self {
        let mut held = Self::default();
        for Slice { contents, .. } in published {
            if !contents.device_names().iter().any(|name| is_held(name)) {
                continue;
            }
            for device in contents.devices().into_iter().filter(|device| is_held(&device.name)) {
                held.devices.entry(device.name.clone()).or_insert(device);
            }
        }
        let consumptions = held.devices.values().flat_map(|device| device.consumes_counters.iter().flatten());
        let drawn_on: BTreeSet<&str> =
            consumptions.map(|consumption| consumption.counter_set.as_str()).collect();
        if drawn_on.is_empty() {
            return held;
        }
        let sets = published.iter().flat_map(|slice| slice.contents.shared_counters());
        for set in sets.filter(|set| drawn_on.contains(set.name.as_str())) {
            held.counter_sets.entry(set.name.clone()).or_insert(set);
        }
        held
    }

    /// The held devices, by name.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// Published form of `offered`, of a card with this counter set. Under exclusive use by a claim: its form at allocation, with current
    /// taints. A shareable device may get new claims, so only its GPU pool stays. `None` on a change between exclusive and shareable:
    /// either way, kube-scheduler would no longer count the existing claims, so the device is not offered before they end.
    pub(super) fn as_given_out(&self, mut offered: Device, set: Option<&CounterSet>) -> Option<Device> {
        let Some(held) = self.devices.get(&offered.name) else { return Some(offered) };
        if is_for_many(held) != is_for_many(&offered) {
            return None;
        }
        let is_covered = |consumption| set.is_some_and(|set| counters::covers(set, consumption));
        let has_counters = held.consumes_counters.iter().flatten().all(is_covered);
        if !is_for_many(held) && is_same_hardware(held, &offered) && has_counters {
            return Some(Device { taints: offered.taints, ..held.clone() });
        }
        let pool = held.attributes.as_ref().and_then(|attributes| attributes.get(attribute::GPU_POOL));
        let attributes = offered.attributes.get_or_insert_default();
        match pool {
            Some(pool) => drop(attributes.insert(attribute::GPU_POOL.to_owned(), pool.clone())),
            None => drop(attributes.remove(attribute::GPU_POOL)),
        }
        Some(offered)
    }

    /// Whether any device of `card` except the one with this name is held.
    pub(super) fn holds_others(&self, card: PciBusId, name: &str) -> bool {
        let is_of_card = |held: &str| held.parse::<DeviceName>().is_ok_and(|held| held.card() == card);
        self.devices.keys().any(|held| held != name && is_of_card(held))
    }

    /// Whether the device of this name is held and draws on no counters: nothing else of its card was offered when the claim
    /// got the device.
    pub(super) fn holds_alone(&self, name: &str) -> bool {
        self.devices.get(name).is_some_and(|held| !draws_on_counters(held))
    }

    /// Whether the device of this name is held.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.devices.contains_key(name)
    }

    /// Whether the device of this name is held and draws on counters.
    pub(super) fn holds_with_counters(&self, name: &str) -> bool {
        self.devices.get(name).is_some_and(draws_on_counters)
    }

    /// The counter set to publish for a card whose new set is `fresh`: the published one while held devices draw on it. A new
    /// one could lack their counters, or have counters missing from their consumption.
    pub(super) fn counter_set(&self, fresh: CounterSet) -> CounterSet {
        self.counter_sets.get(&fresh.name).cloned().unwrap_or(fresh)
    }

    /// The held devices no longer `offered`, with a taint for this and the taints of their cards. Their counter sets are added to
    /// `counter_sets` where missing.
    pub(super) fn not_offered(
        &self,
        offered: &BTreeSet<&str>,
        options: &PoolOptions,
        cards: &[&Card],
        counter_sets: &mut Vec<CounterSet>,
        warnings: &mut Vec<Warning>,
    ) -> Vec<Device> {
        let mut devices = Vec::new();
        for held in self.devices.values().filter(|device| !offered.contains(device.name.as_str())) {
            let mut device = held.clone();
            for consumption in device.consumes_counters.iter().flatten() {
                let name = &consumption.counter_set;
                let known = counter_sets.iter().any(|set| set.name == *name);
                if let Some(set) = self.counter_sets.get(name).filter(|_| !known) {
                    counter_sets.push(set.clone());
                }
            }
            // To the scheduler, a device drawing on a missing counter set makes the whole pool invalid.
            if let Some(consumptions) = &mut device.consumes_counters {
                let before = consumptions.len();
                consumptions.retain(|consumption| is_covered(consumption, counter_sets));
                if consumptions.len() < before {
                    warnings.push(Warning::HeldWithoutCounters(device.name.clone()));
                }
            }
            if let Ok(name) = device.name.parse::<DeviceName>() {
                taints::set_allocation(&mut device, options.offers.of(name.card()).allocation);
                if let Some(card) = cards.iter().find(|card| card.pci == name.card()) {
                    taints::set_health(&mut device, &name, card, options);
                }
            }
            taints::add(&mut device, taints::not_offered(&options.driver_name));
            devices.push(device);
        }
        devices
    }
}

fn draws_on_counters(device: &Device) -> bool {
    device.consumes_counters.as_ref().is_some_and(|consumptions| !consumptions.is_empty())
}

fn is_for_many(device: &Device) -> bool {
    device.allow_multiple_allocations == Some(true)
}

/// Whether neither the card nor the partition was replaced by another in its place.
fn is_same_hardware(held: &Device, offered: &Device) -> bool {
    let uuid = |device: &Device, name: &str| device.attributes.as_ref()?.get(name)?.string.clone();
    let is_same =
        |name: &str| uuid(held, name).zip(uuid(offered, name)).is_none_or(|(held, offered)| held == offered);
    is_same(attribute::UUID) && is_same(attribute::PARENT_UUID)
}

fn is_covered(consumption: &DeviceCounterConsumption, counter_sets: &[CounterSet]) -> bool {
    counter_sets.iter().any(|set| counters::covers(set, consumption))
}
