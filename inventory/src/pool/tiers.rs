//! The devices of a pool, tier by tier.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device};
use tessera_api::{DeviceName, DeviceType};

use super::{Held, Slice, Tier, Warning};

/// What is to be published, in the order of trying.
#[derive(Default)]
pub struct Tiers {
    /// The sets that devices draw on, in any order.
    pub counter_sets: Vec<CounterSet>,
    /// Partitions by the rank of their card.
    partitions: BTreeMap<usize, Vec<Device>>,
    /// Whole cards.
    pub cards: Vec<Device>,
    /// Shared devices.
    pub shared: Vec<Device>,
}

impl Tiers {
    /// Adds a partition of the card of that rank.
    pub fn add_partition(&mut self, rank: usize, device: Option<Device>) {
        if let Some(device) = device {
            self.partitions.entry(rank).or_default().push(device);
        }
    }

    /// Adds what is held and no longer offered, with the counters that it draws on, and takes out counter sets that
    /// nothing draws on.
    pub fn add_held(&mut self, held: &Held, driver_name: &str, warnings: &mut Vec<Warning>) {
        let mut counter_sets = std::mem::take(&mut self.counter_sets);
        let offered: BTreeSet<&str> = self.devices().map(|device| device.name.as_str()).collect();
        let not_offered = held.not_offered(&offered, driver_name, &mut counter_sets, warnings);
        for device in not_offered {
            let name = device.name.parse::<DeviceName>().ok();
            match name.as_ref().map(DeviceName::device_type) {
                Some(DeviceType::Mig) => {
                    // Among the other partitions of its card, so that no other slice changes for it.
                    let rank = name.and_then(|name| self.rank_of(&name)).unwrap_or(usize::MAX);
                    self.add_partition(rank, Some(device));
                }
                Some(DeviceType::Mps | DeviceType::TimeSlice) => self.shared.push(device),
                Some(DeviceType::Gpu) | None => self.cards.push(device),
            }
        }
        let used: BTreeSet<String> = self
            .devices()
            .flat_map(|device| device.consumes_counters.iter().flatten())
            .map(|consumption| consumption.counter_set.clone())
            .collect();
        counter_sets.retain(|set| used.contains(&set.name));
        self.counter_sets = counter_sets;
    }

    /// The slices by ascending name.
    pub fn into_slices(mut self) -> Vec<Slice> {
        // Devices go by policy; the sets they draw on are only looked up.
        self.counter_sets.sort_by(|one, other| one.name.cmp(&other.name));
        let mut slices: Vec<Slice> = Slice::of_counter_sets(self.counter_sets).collect();
        for (rank, devices) in self.partitions {
            slices.extend(Slice::of_partitions(rank, devices));
        }
        slices.extend(Slice::of_devices(Tier::Cards, self.cards));
        slices.extend(Slice::of_devices(Tier::Shared, self.shared));
        slices
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        self.partitions.values().flatten().chain(&self.cards).chain(&self.shared)
    }

    /// The rank of the card that a partition belongs to, where any of its partitions is offered.
    fn rank_of(&self, name: &DeviceName) -> Option<usize> {
        let of_card = |device: &Device| {
            device.name.parse::<DeviceName>().is_ok_and(|other| other.card() == name.card())
        };
        self.partitions.iter().find(|(_, devices)| devices.iter().any(of_card)).map(|(rank, _)| *rank)
    }
}
