//! The partitions that a pool publishes, with the counters they draw on.

use std::collections::HashMap;

use tessera_api::{DeviceName, PartitionName, Quantity, attribute};
use tessera_inventory::Pool;

/// A partition.
pub struct Partition {
    pub name: PartitionName,
    pub profile: String,
    pub compute_slices: u32,
    pub memory_slices: u32,
    /// The counters that it draws on, and the amounts.
    draws: Vec<(usize, i64)>,
}

/// The published partitions of one card.
pub struct Counted {
    pub memory_slices: usize,
    pub partitions: Vec<Partition>,
    counters: Vec<i64>,
}

impl Partition {
    pub fn fits(&self, left: &[i64]) -> bool {
        self.draws.iter().all(|(counter, amount)| left[*counter] >= *amount)
    }

    /// Adds what it draws, multiplied by `times`.
    pub fn draw(&self, left: &mut [i64], times: i64) {
        self.draws.iter().for_each(|(counter, amount)| left[*counter] += amount * times);
    }
}

impl Counted {
    /// From a pool with one card.
    pub fn of(pool: &Pool) -> Self {
        let sets: Vec<_> = pool.counter_sets().collect();
        let [set] = &sets[..] else { panic!("{} counter sets", sets.len()) };
        let whole = |text: &str| text.parse::<Quantity>().unwrap().as_integer().unwrap();
        let places: HashMap<&str, usize> =
            set.counters.keys().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let is_memory = |name: &str| name.starts_with("memory-slice-");
        let mut partitions = Vec::new();
        for device in pool.devices() {
            let Ok(DeviceName::Partition(name)) = device.name.parse() else { continue };
            let profile = device.attributes.as_ref().unwrap()[attribute::PROFILE].string.clone().unwrap();
            let consumption = &device.consumes_counters.as_ref().unwrap()[0];
            assert_eq!(consumption.counter_set, set.name);
            let drawn = &consumption.counters;
            partitions.push(Partition {
                name,
                compute_slices: profile.split('g').next().unwrap().parse().unwrap(),
                memory_slices: drawn.keys().filter(|name| is_memory(name)).count() as u32,
                draws: drawn
                    .iter()
                    .map(|(name, drawn)| (places[name.as_str()], whole(&drawn.value.0)))
                    .collect(),
                profile,
            });
        }
        Self {
            memory_slices: set.counters.keys().filter(|name| is_memory(name)).count(),
            partitions,
            counters: set.counters.values().map(|counter| whole(&counter.value.0)).collect(),
        }
    }

    /// The counters when nothing is allocated.
    pub fn all(&self) -> Vec<i64> {
        self.counters.clone()
    }

    /// Number of sets of these partitions that the counters admit, including the empty one; and how many are maximal.
    pub fn layouts(&self, of: &[&Partition]) -> (u32, u32) {
        let mut found = (0, 0);
        count(of, 0, &mut self.all(), &mut found);
        found
    }
}

fn count(of: &[&Partition], first: usize, left: &mut [i64], found: &mut (u32, u32)) {
    found.0 += 1;
    found.1 += u32::from(!of.iter().any(|partition| partition.fits(left)));
    for (position, partition) in of.iter().enumerate().skip(first) {
        if partition.fits(left) {
            partition.draw(left, -1);
            count(of, position + 1, left, found);
            partition.draw(left, 1);
        }
    }
}
