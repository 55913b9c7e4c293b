//! The devices of a pool, tier by tier.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device};
use tessera_api::{DeviceName, DeviceType, limits};

use super::batch::Batches;
use super::tier::partitions_name_suffix;
use super::{Contents, PoolOptions, Slice, Tier};
use crate::machine::Card;
use crate::warning::Warning;

/// Devices and counter sets to publish, in the order of trying.
#[derive(Default)]
pub struct Tiers {
    /// The devices' counter sets, in any order.
    pub counter_sets: Vec<CounterSet>,
    /// Names of the counter sets in use by a device.
    used: BTreeSet<String>,
    /// Whole cards.
    cards: Batches,
    /// Partitions by the rank of their card.
    partitions: BTreeMap<usize, Batches>,
    /// Shared devices.
    shared: Batches,
}

impl Tiers {
    /// Adds a partition of the card with this rank.
    pub fn add_partition(&mut self, rank: usize, device: Option<Device>) {
        if let Some(device) = device {
            self.draws(&device);
            self.partitions.entry(rank).or_default().push(device);
        }
    }

    /// Adds a whole card.
    pub fn add_card(&mut self, device: Option<Device>) {
        if let Some(device) = device {
            self.draws(&device);
            self.cards.push(device);
        }
    }

    /// Adds a shared device.
    pub fn add_shared(&mut self, device: Option<Device>) {
        if let Some(device) = device {
            self.draws(&device);
            self.shared.push(device);
        }
    }

    /// All partitions of the card with this rank have been added, except the held ones.
    pub fn close_partitions(&mut self, rank: usize) {
        if let Some(partitions) = self.partitions.get_mut(&rank) {
            partitions.close();
        }
    }

    /// Adds the held devices no longer offered, with their counter sets, and removes counter sets without a
    /// device. Returns the names of the devices added.
    pub fn add_held(
        &mut self,
        options: &PoolOptions,
        cards: &[&Card],
        warnings: &mut Vec<Warning>,
    ) -> Vec<String> {
        let mut counter_sets = std::mem::take(&mut self.counter_sets);
        let offered: BTreeSet<&str> = self.names().collect();
        let not_offered = options.held.not_offered(&offered, options, cards, &mut counter_sets, warnings);
        let names = not_offered.iter().map(|device| device.name.clone()).collect();
        for device in not_offered {
            let name = device.name.parse::<DeviceName>().ok();
            match name.as_ref().map(DeviceName::device_type) {
                Some(DeviceType::Mig) => {
                    // In the slice of its card's partitions, so no other slice changes.
                    let rank = name.and_then(|name| self.rank_of(&name)).unwrap_or(usize::MAX);
                    self.add_partition(rank, Some(device));
                }
                Some(DeviceType::Mps | DeviceType::TimeSlice) => self.add_shared(Some(device)),
                Some(DeviceType::Gpu) | None => self.add_card(Some(device)),
            }
        }
        counter_sets.retain(|set| self.used.contains(&set.name));
        self.counter_sets = counter_sets;
        names
    }

    /// The slices by ascending name.
    pub fn into_slices(mut self) -> Vec<Slice> {
        // Devices go by policy; the sets they draw on are only looked up.
        self.counter_sets.sort_by(|one, other| one.name.cmp(&other.name));
        let counter_sets = self.counter_sets.chunks(limits::COUNTER_SETS_PER_SLICE);
        let counter_sets = counter_sets.map(Contents::of_shared_counters).collect();
        let mut slices = number(counter_sets, |position| Tier::Counters.name_suffix(position));
        slices.extend(number(self.cards.into_batches(), |position| Tier::Cards.name_suffix(position)));
        for (rank, partitions) in self.partitions {
            slices
                .extend(number(partitions.into_batches(), |position| partitions_name_suffix(rank, position)));
        }
        slices.extend(number(self.shared.into_batches(), |position| Tier::Shared.name_suffix(position)));
        slices
    }

    fn draws(&mut self, device: &Device) {
        for consumption in device.consumes_counters.iter().flatten() {
            if !self.used.contains(&consumption.counter_set) {
                self.used.insert(consumption.counter_set.clone());
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let partitions = self.partitions.values().flat_map(Batches::names);
        self.cards.names().chain(partitions).chain(self.shared.names())
    }

    /// The rank of a partition's card, if any of its partitions is offered.
    fn rank_of(&self, name: &DeviceName) -> Option<usize> {
        let of_card =
            |other: &str| other.parse::<DeviceName>().is_ok_and(|other| other.card() == name.card());
        self.partitions.iter().find(|(_, partitions)| partitions.names().any(of_card)).map(|(rank, _)| *rank)
    }
}

fn number(contents: Vec<Contents>, name_suffix: impl Fn(usize) -> String) -> Vec<Slice> {
    let slice = |(position, contents)| Slice { name_suffix: name_suffix(position), contents };
    contents.into_iter().enumerate().map(slice).collect()
}
