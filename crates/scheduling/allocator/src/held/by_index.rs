//! Held devices by their place in the inventory.

use std::sync::Arc;

use hashbrown::HashMap;

use super::HeldDevice;
use crate::inventory::DeviceIndex;

/// Entries by device.
#[derive(Debug, Clone, Default)]
pub(super) struct ByIndex {
    entries: HashMap<DeviceIndex, Arc<HeldDevice>>,
    /// One bit for each device with an entry. Most have none, and a node's lookup covers all its devices.
    bits: Vec<u64>,
}

impl ByIndex {
    pub fn get(&self, index: DeviceIndex) -> Option<&Arc<HeldDevice>> {
        let word = self.bits.get(index as usize / 64)?;
        if word >> (index % 64) & 1 == 0 { None } else { self.entries.get(&index) }
    }

    pub fn insert(&mut self, index: DeviceIndex, held: Arc<HeldDevice>) {
        let word = index as usize / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (index % 64);
        self.entries.insert(index, held);
    }

    pub fn remove(&mut self, index: DeviceIndex) {
        if self.get(index).is_some() {
            self.bits[index as usize / 64] &= !(1 << (index % 64));
            self.entries.remove(&index);
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.bits.clear();
    }
}
