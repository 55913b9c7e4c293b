//! Claims given devices already held by another claim, by two allocators unaware of each other.

use hashbrown::HashMap;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use crate::amount::Nanos;
use crate::held::consumed;
use crate::inventory::{DeviceIndex, DeviceRef, Inventory, Slice};
use crate::names::Name;

/// A claim whose devices are not left by the claims before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The claim, by its place.
    pub claim: usize,
    /// Name of the first device already held by an earlier claim.
    pub device: String,
}

/// Claims to be taken back so the others can stay: each has a device of the driver, a share or counters already held by an earlier
/// claim. `claims` are in the order of their right to their devices. Unpublished devices hold
/// nothing, and neither does admin access.
pub fn overlaps(inventory: &Inventory, driver: &str, claims: &[&ResourceClaim]) -> Vec<Overlap> {
    let mut taken = Taken::default();
    let mut found = Vec::new();
    for (place, claim) in claims.iter().enumerate() {
        let mut with = taken.clone();
        match with.add(inventory, driver, claim) {
            Ok(()) => taken = with,
            Err(device) => found.push(Overlap { claim: place, device }),
        }
    }
    found
}

/// Holds of some claims.
#[derive(Debug, Clone, Default)]
struct Taken {
    devices: HashMap<DeviceIndex, Device>,
    /// Remaining counters of pools with devices in use, by pool and generation.
    counters: HashMap<(u32, i64), HashMap<(Name, Name), Nanos>>,
}

#[derive(Debug, Clone, Default)]
struct Device {
    is_whole: bool,
    consumed: HashMap<String, Nanos>,
}

impl Taken {
    /// Adds a claim; the error is the first device already held.
    fn add(&mut self, inventory: &Inventory, driver: &str, claim: &ResourceClaim) -> Result<(), String> {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        for result in devices.iter().flat_map(|devices| devices.results.iter().flatten()) {
            if result.driver != driver || result.admin_access == Some(true) {
                continue;
            }
            // While a driver replaces its slices, slices of the previous generation are still published.
            let found = inventory.find(&result.driver, &result.pool, &result.device);
            let newest = found.max_by_key(|device| inventory.slice_of(device.index).generation);
            if newest.is_some_and(|device| !self.take(device, result)) {
                return Err(result.device.clone());
            }
        }
        Ok(())
    }

    fn take(&mut self, device: DeviceRef<'_>, result: &DeviceRequestAllocationResult) -> bool {
        let is_share = result.share_id.is_some();
        let is_first = !self.devices.contains_key(&device.index);
        let known = self.devices.entry(device.index).or_default();
        if !is_first && (known.is_whole || !is_share) {
            return false;
        }
        known.is_whole = !is_share;
        // An invalid quantity takes nothing, as everywhere.
        for (name, amount) in consumed(result).unwrap_or_default() {
            let all = known.consumed.entry(name.to_owned()).or_default();
            *all = all.saturating_add(amount);
            if device.capacity(name).is_some_and(|capacity| *all > capacity) {
                return false;
            }
        }
        // Of a shared device only the first share takes counters.
        !is_first || self.take_counters(device)
    }

    fn take_counters(&mut self, device: DeviceRef<'_>) -> bool {
        let inventory = device.inventory;
        let Slice { pool, generation, .. } = *inventory.slice_of(device.index);
        let left = self.counters.entry((pool, generation)).or_insert_with(|| {
            let slices = &inventory.pools[pool as usize].slices;
            let slices = slices.iter().map(|slice| &inventory.slices[*slice as usize]);
            let sets =
                slices.filter(|slice| slice.generation == generation).flat_map(|slice| &slice.counter_sets);
            sets.flat_map(|set| set.counters.iter().map(|(name, value)| ((set.name, *name), *value)))
                .collect()
        });
        device.consumptions().all(|consumption| {
            // A counter that does not exist limits nothing here; kube-scheduler would not have allocated the device.
            let Some(left) = left.get_mut(&(consumption.set, consumption.counter)) else { return true };
            *left -= consumption.amount;
            *left >= 0
        })
    }
}
