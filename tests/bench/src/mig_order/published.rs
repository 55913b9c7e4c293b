//! The published partitions of one node's cards, in the view of first-fit over counters.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use tessera_api::{DeviceName, ProfileSpelling, attribute, counter};
use tessera_inventory::Pool;

use super::mix::Mix;

/// The MIG partitions published by a node, and their counters.
#[derive(Clone, Debug)]
pub struct Published {
    /// Counters of all sets, when nothing is allocated.
    counters: Vec<i64>,
    /// The partitions in the order of publication.
    devices: Vec<Partition>,
    /// The devices of each profile, in the order of trying.
    by_profile: Vec<Vec<usize>>,
    /// Names of the profiles.
    profiles: Vec<String>,
    /// Compute slices of each profile.
    compute: Vec<u32>,
}

/// A partition as a device.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Its name in the pool.
    pub name: String,
    /// Index of its card, in the order of publication.
    card: usize,
    /// Its first memory slice.
    start: u32,
    /// Its memory slices, as bits.
    slices: u64,
    /// The device's counters, and the amounts drawn.
    draws: Vec<(usize, i64)>,
}

/// The allocations of one node.
#[derive(Clone, Debug)]
pub struct Allocated {
    left: Vec<i64>,
    held: Vec<bool>,
    /// Memory slices in use, as bits, by card.
    slices: Vec<u64>,
}

impl Published {
    /// Reads the partitions of a pool, in the order of publication.
    ///
    /// # Errors
    /// When a partition has no name or profile of ours, or draws on a missing counter.
    pub fn of_pool(pool: &Pool) -> Result<Self> {
        let mut counters = Vec::new();
        let mut places = HashMap::new();
        let sets: Vec<_> = pool.counter_sets().collect();
        for set in &sets {
            for (name, counter) in &set.counters {
                places.insert((set.name.as_str(), name.as_str()), counters.len());
                counters.push(whole(&counter.value.0)?);
            }
        }
        let mut published = Self {
            counters,
            devices: Vec::new(),
            by_profile: Vec::new(),
            profiles: Vec::new(),
            compute: Vec::new(),
        };
        let mut cards = Vec::new();
        for device in pool.devices() {
            let name: DeviceName = device.name.parse()?;
            let DeviceName::Partition(partition) = &name else { continue };
            let attributes = device.attributes.as_ref().context("a partition without attributes")?;
            let profile = attributes
                .get(attribute::PROFILE)
                .and_then(|profile| profile.string.as_deref())
                .with_context(|| format!("{name} has no profile"))?;
            let card = position(&mut cards, &partition.card);
            let profile = published.profile_or_new(profile)?;
            let mut draws = Vec::new();
            let mut slices = 0;
            for consumption in device.consumes_counters.iter().flatten() {
                for (counter, amount) in &consumption.counters {
                    slices |= counter::memory_slice_number(counter).map_or(0, |number| 1 << number.min(63));
                    let place = places
                        .get(&(consumption.counter_set.as_str(), counter.as_str()))
                        .with_context(|| format!("{name} draws on {counter}, which does not exist"))?;
                    draws.push((*place, whole(&amount.value.0)?));
                }
            }
            published.by_profile[profile].push(published.devices.len());
            let start = partition.start;
            published.devices.push(Partition { name: device.name.clone(), card, start, slices, draws });
        }
        ensure!(!published.devices.is_empty(), "the pool has no partitions");
        Ok(published)
    }

    fn profile_or_new(&mut self, name: &str) -> Result<usize> {
        if let Some(place) = self.profiles.iter().position(|known| known == name) {
            return Ok(place);
        }
        let compute = name.split('g').next().and_then(|number| number.parse().ok());
        self.compute.push(compute.with_context(|| format!("{name} does not begin with compute slices"))?);
        self.profiles.push(name.to_owned());
        self.by_profile.push(Vec::new());
        Ok(self.profiles.len() - 1)
    }

    /// The same devices ordered by name within each card, as in NVIDIA's driver.
    #[must_use]
    pub fn by_name(&self) -> Self {
        let mut other = self.clone();
        for devices in &mut other.by_profile {
            devices.sort_by_key(|device| (self.devices[*device].card, self.devices[*device].start));
        }
        other
    }

    /// The same devices, one placement after the other across all cards: to show the benefit of card by card.
    #[must_use]
    pub fn across_cards(&self) -> Self {
        let mut other = self.clone();
        for devices in &mut other.by_profile {
            let of_card = |device: &usize| self.devices[*device].card;
            let first = devices.first().map(of_card);
            let starts: Vec<u32> = devices
                .iter()
                .filter(|device| Some(of_card(device)) == first)
                .map(|device| self.devices[*device].start)
                .collect();
            devices.sort_by_key(|device| {
                let rank = starts.iter().position(|start| *start == self.devices[*device].start);
                (rank, of_card(device))
            });
        }
        other
    }

    /// Compute slices of the whole node: the sum of each card's largest profile.
    #[must_use]
    pub fn compute_slices(&self) -> u32 {
        let largest = self.compute.iter().max().copied().unwrap_or(0);
        u32::try_from(self.card_count()).unwrap_or(u32::MAX) * largest
    }

    fn card_count(&self) -> usize {
        self.devices.iter().map(|device| device.card + 1).max().unwrap_or(0)
    }

    /// The profiles as their devices' names spell them.
    ///
    /// # Errors
    /// When one is not spelt as a profile.
    pub fn spellings(&self) -> Result<Vec<ProfileSpelling>> {
        let of = |name: &String| ProfileSpelling::of_profile(name).with_context(|| name.clone());
        self.profiles.iter().map(of).collect()
    }

    /// The placements on one card: profile, and memory slices as bits.
    pub fn placements(&self) -> impl Iterator<Item = (usize, u64)> {
        let of_profile = self.by_profile.iter().enumerate();
        let all =
            of_profile.flat_map(|(profile, devices)| devices.iter().map(move |device| (profile, *device)));
        all.map(|(profile, device)| (profile, &self.devices[device]))
            .filter(|(_, device)| device.card == 0)
            .map(|(profile, device)| (profile, device.slices))
    }

    /// The memory slices of a device, and the occupied ones on its card, as bits.
    #[must_use]
    pub fn slices(&self, node: &Allocated, device: usize) -> (u64, u64) {
        let device = &self.devices[device];
        (device.slices, node.slices[device.card])
    }

    /// Index of the card of a device.
    #[must_use]
    pub fn card_of(&self, device: usize) -> usize {
        self.devices[device].card
    }

    /// Compute slices of a profile.
    #[must_use]
    pub fn compute_of(&self, profile: usize) -> u32 {
        self.compute[profile]
    }

    /// Number of profiles.
    #[must_use]
    pub fn profile_count(&self) -> usize {
        self.profiles.len()
    }

    /// Name of a profile.
    #[must_use]
    pub fn profile_name(&self, profile: usize) -> &str {
        &self.profiles[profile]
    }

    /// The devices, in the order of publication.
    #[must_use]
    pub fn devices(&self) -> &[Partition] {
        &self.devices
    }

    /// The devices of a profile, in the order of trying.
    #[must_use]
    pub fn of_profile(&self, profile: usize) -> &[usize] {
        &self.by_profile[profile]
    }

    /// The profiles requested by a mix, each with its share of the requests.
    ///
    /// # Errors
    /// When a profile is not published.
    pub fn requests(&self, mix: &Mix) -> Result<Vec<(usize, f64)>> {
        let all: f64 = mix.weights.iter().map(|(_, weight)| weight).sum();
        mix.weights
            .iter()
            .map(|(name, weight)| {
                let place = self.profiles.iter().position(|known| known == name);
                Ok((place.with_context(|| format!("{name} is not published"))?, weight / all))
            })
            .collect()
    }

    /// A node without allocations.
    #[must_use]
    pub fn empty(&self) -> Allocated {
        Allocated {
            left: self.counters.clone(),
            held: vec![false; self.devices.len()],
            slices: vec![0; self.card_count()],
        }
    }

    /// The first free device of a profile whose counters suffice.
    #[must_use]
    pub fn first_fit(&self, node: &Allocated, profile: usize) -> Option<usize> {
        self.by_profile[profile].iter().copied().find(|device| self.fits(node, *device))
    }

    /// Whether a device is free and its counters suffice.
    #[must_use]
    pub fn fits(&self, node: &Allocated, device: usize) -> bool {
        !node.held[device]
            && self.devices[device].draws.iter().all(|(counter, amount)| node.left[*counter] >= *amount)
    }

    /// Allocates a device.
    pub fn take(&self, node: &mut Allocated, device: usize) {
        node.held[device] = true;
        node.slices[self.devices[device].card] |= self.devices[device].slices;
        for (counter, amount) in &self.devices[device].draws {
            node.left[*counter] -= amount;
        }
    }

    /// Gives a device back.
    pub fn give_back(&self, node: &mut Allocated, device: usize) {
        node.held[device] = false;
        node.slices[self.devices[device].card] &= !self.devices[device].slices;
        for (counter, amount) in &self.devices[device].draws {
            node.left[*counter] += amount;
        }
    }
}

fn position<T: PartialEq + Clone>(known: &mut Vec<T>, one: &T) -> usize {
    known.iter().position(|other| other == one).unwrap_or_else(|| {
        known.push(one.clone());
        known.len() - 1
    })
}

fn whole(quantity: &str) -> Result<i64> {
    quantity.parse().with_context(|| format!("counter value {quantity:?} is not a whole number"))
}
