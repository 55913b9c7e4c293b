//! Adds and removes slices of an inventory, and keeps its indexes up to date.

use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::OnceLock;

use hashbrown::{DefaultHashBuilder, HashSet};

use super::{DeviceIndex, DeviceRef, Inventory, PoolSlices, Slice};
use crate::names::Name;

/// Allowance of removed slices and devices, in addition to the number in use, before the inventory is compacted.
const LEAST_GARBAGE: usize = 1024;

/// The effect of a change on the indices of devices: held devices must follow it, see [`crate::held::Held::follow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Removed devices.
    pub(crate) gone: Range<DeviceIndex>,
    /// Added devices.
    pub(crate) new: Range<DeviceIndex>,
    /// All indices have changed.
    pub(crate) all: bool,
}

pub(super) fn hash_id(hasher: &DefaultHashBuilder, id: (Name, Name, Name)) -> u64 {
    hasher.hash_one(id)
}

/// Inserts a slice into a list sorted by place.
fn put(list: &mut Vec<u32>, place: u32) {
    let at = list.partition_point(|other| *other < place);
    list.insert(at, place);
}

fn take(list: &mut Vec<u32>, place: u32) {
    if let Ok(at) = list.binary_search(&place) {
        list.remove(at);
    }
}

impl Inventory {
    /// An inventory without slices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the slice with this name, if there is one.
    pub fn remove(&mut self, slice: &str) -> Change {
        let gone = self.place_of(slice).map_or(0..0, |place| self.take_out(place));
        self.changed(gone, 0..0)
    }

    /// Frees spare capacity: worth it after many slices were added at once.
    pub fn shrink_to_fit(&mut self) {
        self.names.shrink_to_fit();
        self.slices.shrink_to_fit();
        self.devices.shrink_to_fit();
        self.cells.shrink_to_fit();
    }

    /// The slice with this name.
    pub(crate) fn place_of(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.by_name.find(hash, |place| self.slices[*place as usize].name == name).copied()
    }

    pub(crate) fn pool(&mut self, driver: Name, name: Name) -> u32 {
        let pools = &mut self.pools;
        *self.pool_index.entry((driver, name)).or_insert_with(|| {
            pools.push(PoolSlices {
                driver,
                name,
                slices: Vec::new(),
                newest: i64::MIN,
                is_faultless: OnceLock::new(),
            });
            pools.len() as u32 - 1
        })
    }

    /// Indexes a slice whose devices were added already: at the end, or in the place of a removed one.
    pub(crate) fn put_in(&mut self, place: u32, mut slice: Slice) -> Change {
        slice.kind = self.kind_of(&slice);
        self.share_cells(&slice);
        let new = slice.first_device..slice.end_device;
        let mut gone = 0..0;
        if (place as usize) < self.slices.len() {
            gone = self.take_out(place);
            self.slices[place as usize] = slice;
        } else {
            self.slices.push(slice);
        }
        self.index(place);
        self.changed(gone, new)
    }

    fn changed(&mut self, gone: Range<DeviceIndex>, new: Range<DeviceIndex>) -> Change {
        if self.garbage <= self.in_use + LEAST_GARBAGE {
            return Change { gone, new, all: false };
        }
        *self = self.compacted();
        Change { gone: 0..0, new: 0..0, all: true }
    }

    fn index(&mut self, place: u32) {
        let slice = &self.slices[place as usize];
        let (slices, hasher) = (&self.slices, &self.hasher);
        self.by_name.insert_unique(hasher.hash_one(slice.name.as_str()), place, |other| {
            hasher.hash_one(slices[*other as usize].name.as_str())
        });
        match slice.own_node(&self.names) {
            Some(node) => {
                put(self.on_node.entry(node).or_default(), place);
                if !slice.counter_sets.is_empty() {
                    put(&mut self.counters_on_nodes, place);
                }
            }
            None => put(&mut self.shared, place),
        }
        let pool = &mut self.pools[slice.pool as usize];
        put(&mut pool.slices, place);
        pool.newest = pool.newest.max(slice.generation);
        pool.is_faultless = OnceLock::new();
        self.in_use += 1 + slice.device_count() as usize;

        let devices = slice.first_device..slice.end_device;
        let mut by_id = std::mem::take(&mut self.by_id);
        for index in devices {
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

    /// Removes a slice from all indexes; its devices stay in memory, without any reference to them.
    fn take_out(&mut self, place: u32) -> Range<DeviceIndex> {
        let devices = self.slices[place as usize].first_device..self.slices[place as usize].end_device;
        let mut by_id = std::mem::take(&mut self.by_id);
        for index in devices.clone() {
            let id = self.id(index);
            let hash = hash_id(&self.hasher, id);
            let Ok(mut entry) = by_id.find_entry(hash, |other| self.id(*other) == id) else { continue };
            let first = *entry.get();
            let Some(mut others) = self.same_id.remove(&first) else {
                entry.remove();
                continue;
            };
            if first == index {
                *entry.get_mut() = others.remove(0);
            } else {
                others.retain(|other| *other != index);
            }
            if !others.is_empty() {
                self.same_id.insert(*entry.get(), others);
            }
        }
        self.by_id = by_id;

        let slice = std::mem::take(&mut self.slices[place as usize]);
        if let Ok(entry) =
            self.by_name.find_entry(self.hasher.hash_one(slice.name.as_str()), |other| *other == place)
        {
            entry.remove();
        }
        match slice.own_node(&self.names) {
            Some(node) => {
                if let Some(slices) = self.on_node.get_mut(&node) {
                    take(slices, place);
                    if slices.is_empty() {
                        self.on_node.remove(&node);
                    }
                }
                take(&mut self.counters_on_nodes, place);
            }
            None => take(&mut self.shared, place),
        }
        let slices = &self.slices;
        let pool = &mut self.pools[slice.pool as usize];
        take(&mut pool.slices, place);
        let generations = pool.slices.iter().map(|other| slices[*other as usize].generation);
        pool.newest = generations.max().unwrap_or(i64::MIN);
        pool.is_faultless = OnceLock::new();
        self.defects.retain(|index, _| !devices.contains(index));
        self.in_use -= 1 + slice.device_count() as usize;
        self.garbage += 1 + slice.device_count() as usize;
        devices
    }

    /// Whether the slices of a pool's newest generation together have no fault, so every subset is faultless, too.
    pub(crate) fn is_faultless(&self, pool: u32) -> bool {
        let pool = &self.pools[pool as usize];
        *pool.is_faultless.get_or_init(|| {
            let newest = |place: &&u32| self.slices[**place as usize].generation == pool.newest;
            self.are_faultless(&pool.slices.iter().filter(newest).copied().collect::<Vec<_>>())
        })
    }

    /// Whether these slices of one pool have no duplicate name and no missing counter.
    fn are_faultless(&self, slices: &[u32]) -> bool {
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
                let device = DeviceRef { inventory: self, index };
                names.insert(self.devices[index as usize].name)
                    && device.consumptions().all(|taken| counters.contains(&(taken.set, taken.counter)))
                    && device.extra().is_none_or(|extra| extra.bare_sets.iter().all(|set| sets.contains(set)))
            })
        })
    }
}
