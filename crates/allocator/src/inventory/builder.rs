//! Makes an inventory and its indexes.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};

use super::{Inventory, PoolSlices};
use crate::names::Name;

/// Collects slices; [`Self::build`] then makes the indexes. Slices are added by [`Self::add`], see
/// [`crate::convert`].
#[derive(Debug, Default)]
pub struct InventoryBuilder {
    pub(crate) inventory: Inventory,
    pub(crate) pool_index: HashMap<(Name, Name), u32>,
}

pub(crate) fn hash_id(hasher: &DefaultHashBuilder, id: (Name, Name, Name)) -> u64 {
    hasher.hash_one(id)
}

impl InventoryBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn pool(&mut self, driver: Name, name: Name) -> u32 {
        let pools = &mut self.inventory.pools;
        *self.pool_index.entry((driver, name)).or_insert_with(|| {
            pools.push(PoolSlices {
                driver,
                name,
                rank: 0,
                slices: Vec::new(),
                newest: i64::MIN,
                is_valid: false,
            });
            pools.len() as u32 - 1
        })
    }

    /// The inventory of all slices that were added.
    pub fn build(self) -> Inventory {
        let mut inventory = self.inventory;
        inventory.index_slices();
        inventory.index_pools();
        inventory.index_devices();
        inventory.names.shrink_to_fit();
        inventory.slices.shrink_to_fit();
        inventory.devices.shrink_to_fit();
        inventory.cells.shrink_to_fit();
        inventory
    }
}

impl Inventory {
    fn index_slices(&mut self) {
        let mut by_name: Vec<u32> = (0..self.slices.len() as u32).collect();
        by_name.sort_by(|one, two| self.slices[*one as usize].name.cmp(&self.slices[*two as usize].name));
        for (rank, index) in by_name.into_iter().enumerate() {
            self.slices[index as usize].rank = rank as u32;
        }
        for (index, slice) in self.slices.iter().enumerate() {
            let own_node = slice.node_name.filter(|name| !self.names.text(*name).is_empty());
            match own_node {
                Some(node) if slice.counter_sets.is_empty() => {
                    self.on_node.entry(node).or_default().push(index as u32);
                }
                _ => self.shared.push(index as u32),
            }
            let pool = &mut self.pools[slice.pool as usize];
            pool.slices.push(index as u32);
            pool.newest = pool.newest.max(slice.generation);
        }
    }

    fn index_pools(&mut self) {
        let mut by_name: Vec<u32> = (0..self.pools.len() as u32).collect();
        by_name.sort_by_key(|index| {
            let pool = &self.pools[*index as usize];
            (self.names.text(pool.driver), self.names.text(pool.name))
        });
        let mut valid = Vec::with_capacity(self.pools.len());
        for pool in &self.pools {
            let newest: Vec<u32> = pool
                .slices
                .iter()
                .copied()
                .filter(|slice| self.slices[*slice as usize].generation == pool.newest)
                .collect();
            valid.push(self.is_faultless(&newest));
        }
        for (rank, index) in by_name.into_iter().enumerate() {
            self.pools[index as usize].rank = rank as u32;
        }
        for (pool, is_valid) in self.pools.iter_mut().zip(valid) {
            pool.is_valid = is_valid;
        }
    }

    /// Whether these slices of one pool have no name twice and no counter that is missing.
    fn is_faultless(&self, slices: &[u32]) -> bool {
        let mut names = HashSet::new();
        let mut counters = HashSet::new();
        let mut sets = HashSet::new();
        for slice in slices {
            let slice = &self.slices[*slice as usize];
            for set in &slice.counter_sets {
                if !sets.insert(set.name) {
                    return false;
                }
                counters.extend(set.counters.iter().map(|(counter, _)| (set.name, *counter)));
            }
        }
        slices.iter().all(|slice| {
            let slice = &self.slices[*slice as usize];
            (slice.first_device..slice.end_device).all(|index| {
                let device = super::DeviceRef { inventory: self, index };
                names.insert(self.devices[index as usize].name)
                    && device.consumptions().all(|taken| counters.contains(&(taken.set, taken.counter)))
                    && device.extra().is_none_or(|extra| extra.bare_sets.iter().all(|set| sets.contains(set)))
            })
        })
    }

    fn index_devices(&mut self) {
        let mut by_id = std::mem::take(&mut self.by_id);
        for index in 0..self.devices.len() as u32 {
            let id = self.id(index);
            let hash = hash_id(&self.hasher, id);
            if let Some(first) = by_id.find(hash, |other| self.id(*other) == id) {
                self.same_id.entry(*first).or_default().push(index);
            } else {
                by_id.insert_unique(hash, index, |other| hash_id(&self.hasher, self.id(*other)));
            }
        }
        self.by_id = by_id;
    }
}
