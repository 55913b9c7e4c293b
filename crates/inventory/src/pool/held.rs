use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCounterConsumption};
use tessera_api::{DeviceName, PciBusId, attribute};

use super::{Contents, PackedContents, PoolOptions, counters, taints};
use crate::machine::Card;
use crate::warning::Warning;

/// Devices held by allocated or prepared claims, with the counter sets they draw on, as last published.
///
/// They stay published whatever happens to their card: removing one would free its counters while it is in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    devices: BTreeMap<String, Device>,
    counter_sets: BTreeMap<String, CounterSet>,
}

impl Held {
    /// Selects the devices for which `is_held` is true, by device name, from what was published last: the slices of
    /// this driver's pool on this node, of the newest generation.
    #[must_use]
    pub fn new<'a>(
        published: impl IntoIterator<Item = &'a PackedContents, IntoIter: Clone>,
        is_held: impl Fn(&str) -> bool,
    ) -> Self {
        let published = published.into_iter();
        let mut held = Self::default();
        for contents in published.clone() {
            if !contents.device_names().iter().any(|name| is_held(name)) {
                continue;
            }
            let Contents::Devices(devices) = contents.unpack() else { continue };
            for device in devices.into_iter().filter(|device| is_held(&device.name)) {
                held.devices.entry(device.name.clone()).or_insert(device);
            }
        }
        let consumptions = held.devices.values().flat_map(|device| device.consumes_counters.iter().flatten());
        let drawn_on: BTreeSet<&str> =
            consumptions.map(|consumption| consumption.counter_set.as_str()).collect();
        if drawn_on.is_empty() {
            return held;
        }
        for contents in published {
            if !contents.is_shared_counters() {
                continue;
            }
            let Contents::SharedCounters(sets) = contents.unpack() else { continue };
            for set in sets.into_iter().filter(|set| drawn_on.contains(set.name.as_str())) {
                held.counter_sets.entry(set.name.clone()).or_insert(set);
            }
        }
        held
    }

    /// The held devices, by name.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// `device` with the GPU pool that it was published with, if it is held: it was given out as the pool's.
    pub(super) fn with_its_pool(&self, mut device: Device) -> Device {
        let Some(held) = self.devices.get(&device.name) else { return device };
        let pool = held.attributes.as_ref().and_then(|attributes| attributes.get(attribute::GPU_POOL));
        let attributes = device.attributes.get_or_insert_default();
        match pool {
            Some(pool) => drop(attributes.insert(attribute::GPU_POOL.to_owned(), pool.clone())),
            None => drop(attributes.remove(attribute::GPU_POOL)),
        }
        device
    }

    /// Whether any device of `card` but that of this name is held.
    pub(super) fn holds_others(&self, card: PciBusId, name: &str) -> bool {
        let is_of_card = |held: &str| held.parse::<DeviceName>().is_ok_and(|held| held.card() == card);
        self.devices.keys().any(|held| held != name && is_of_card(held))
    }

    /// Whether the device of this name is held and draws on no counters: it was given out when nothing else of its card
    /// was offered.
    pub(super) fn holds_alone(&self, name: &str) -> bool {
        self.devices.get(name).is_some_and(|held| held.consumes_counters.as_ref().is_none_or(Vec::is_empty))
    }

    /// The counter set to publish for a card whose new set is `fresh`: the published one where held devices draw on
    /// counters that `fresh` does not have, as after an upgrade that divides cards differently.
    pub(super) fn counter_set(&self, fresh: CounterSet) -> CounterSet {
        let consumptions = self.devices.values().flat_map(|device| device.consumes_counters.iter().flatten());
        let covered = consumptions
            .filter(|consumption| consumption.counter_set == fresh.name)
            .all(|consumption| counters::covers(&fresh, consumption));
        let published = self.counter_sets.get(&fresh.name).filter(|_| !covered).cloned();
        published.unwrap_or(fresh)
    }

    /// The held devices that are not `offered`, tainted for that and as their cards are. Their counter sets are added to
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
            // To the scheduler, a device that consumes from a missing counter set makes the whole pool invalid.
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

fn is_covered(consumption: &DeviceCounterConsumption, counter_sets: &[CounterSet]) -> bool {
    counter_sets.iter().any(|set| counters::covers(set, consumption))
}
