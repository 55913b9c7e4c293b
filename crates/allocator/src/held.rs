//! What claims hold.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use crate::amount::{Amount, Nanos};
use crate::convert::ConvertError;
use crate::inventory::{Change, DeviceIndex, DeviceRef, Inventory};

/// What claims hold of an inventory's devices, by the rules of kube-scheduler: admin access holds nothing, a share of
/// a device holds its consumed capacity, anything else the whole device.
///
/// Keyed by the devices' ids, so it also covers devices that the inventory does not have (yet). It caches the places of
/// these devices in one inventory: pass it every [`Change`] of that inventory, see [`Self::follow`].
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Used for devices that have no entry here.
    base: Option<Arc<Held>>,
    /// With a base, also has entries for devices of which nothing is held any more.
    by_id: HashMap<DeviceId, Arc<HeldDevice>>,
    /// The same by index in the inventory.
    by_index: HashMap<DeviceIndex, Arc<HeldDevice>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DeviceId {
    driver: Box<str>,
    pool: Box<str>,
    device: Box<str>,
}

/// Driver, pool and name of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeviceIdRef<'t>(&'t str, &'t str, &'t str);

/// What is held of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldDevice {
    /// Results that hold the whole device.
    pub whole: u32,
    /// Results that hold a share.
    pub shares: u32,
    /// Shares with consumed capacity; the device counts as shared only with one of these.
    pub capacity_shares: u32,
    /// Sum of consumed capacity by name, with how many shares name it.
    consumed: Vec<(Box<str>, Nanos, u32)>,
    /// Its holders: `namespace/name` of claims, one entry per result, in order.
    pub holders: Vec<String>,
}

impl DeviceId {
    fn borrowed(&self) -> DeviceIdRef<'_> {
        DeviceIdRef(&self.driver, &self.pool, &self.device)
    }
}

impl Hash for DeviceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}

impl Hash for DeviceIdRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0, self.1, self.2).hash(state);
    }
}

impl Equivalent<DeviceId> for DeviceIdRef<'_> {
    fn equivalent(&self, key: &DeviceId) -> bool {
        *self.0 == *key.driver && *self.1 == *key.pool && *self.2 == *key.device
    }
}

impl<'t> From<&'t DeviceRequestAllocationResult> for DeviceIdRef<'t> {
    fn from(result: &'t DeviceRequestAllocationResult) -> Self {
        DeviceIdRef(&result.driver, &result.pool, &result.device)
    }
}

impl PartialEq for Held {
    /// Whether the same is held of the same devices.
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Held {
    /// Nothing is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy-on-write overlay of `base`, for asking what would be if a claim ended. It does not follow changes of the
    /// inventory.
    pub fn over(base: Arc<Held>) -> Self {
        Held { base: Some(base), ..Held::default() }
    }

    /// Adds what `claim.status.allocation` holds.
    ///
    /// # Errors
    /// A consumed capacity is not a quantity; nothing of the claim is then held.
    pub fn add(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.change(inventory, claim, true)
    }

    /// Undoes [`Self::add`] for the same claim with the same allocation.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub fn remove(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.change(inventory, claim, false)
    }

    /// Updates the devices' indices after a change of the inventory.
    pub fn follow(&mut self, inventory: &Inventory, change: &Change) {
        if change.all {
            self.by_index.clear();
            for (id, held) in &self.by_id {
                for index in inventory.indexes_of(&id.driver, &id.pool, &id.device) {
                    self.by_index.insert(index, Arc::clone(held));
                }
            }
            return;
        }
        if !self.by_index.is_empty() {
            for index in change.gone.clone() {
                self.by_index.remove(&index);
            }
        }
        if self.by_id.is_empty() {
            return;
        }
        for index in change.new.clone() {
            let device = DeviceRef { inventory, index };
            let id = DeviceIdRef(device.driver_name(), device.pool(), device.name());
            if let Some(held) = self.by_id.get(&id) {
                self.by_index.insert(index, Arc::clone(held));
            }
        }
    }

    fn change(
        &mut self,
        inventory: &Inventory,
        claim: &ResourceClaim,
        is_added: bool,
    ) -> Result<(), ConvertError> {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation.and_then(|allocation| allocation.devices.as_ref());
        let results = results.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let holder = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let mut changes = Vec::with_capacity(results.len());
        for result in results.iter().filter(|result| result.admin_access != Some(true)) {
            changes.push((result, consumed(result)?));
        }
        for (result, consumed) in changes {
            let id = DeviceIdRef::from(result);
            let mut held = self.of(id).cloned().unwrap_or_default();
            let device = Arc::make_mut(&mut held);
            device.change(result, &consumed, &holder, is_added);
            let is_gone = device.is_free() && self.base.is_none();
            for index in inventory.indexes_of(&result.driver, &result.pool, &result.device) {
                if is_gone {
                    self.by_index.remove(&index);
                } else {
                    self.by_index.insert(index, Arc::clone(&held));
                }
            }
            if is_gone {
                self.by_id.remove(&id);
            } else if let Some(known) = self.by_id.get_mut(&id) {
                *known = held;
            } else {
                let owned = DeviceId { driver: id.0.into(), pool: id.1.into(), device: id.2.into() };
                self.by_id.insert(owned, held);
            }
        }
        Ok(())
    }

    fn of(&self, id: DeviceIdRef<'_>) -> Option<&Arc<HeldDevice>> {
        self.by_id.get(&id).or_else(|| self.base.as_ref()?.of(id))
    }

    pub(crate) fn get(&self, index: DeviceIndex) -> Option<&HeldDevice> {
        let own = if self.by_index.is_empty() { None } else { self.by_index.get(&index) };
        match own {
            Some(held) => Some(&**held).filter(|held| !held.is_free()),
            None => self.base.as_ref()?.get(index),
        }
    }

    pub(crate) fn is_whole(&self, index: DeviceIndex) -> bool {
        self.get(index).is_some_and(|device| device.whole > 0)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.base.as_ref().is_none_or(|base| base.is_empty())
    }

    /// Number of devices of which something is held, whether or not they are in the inventory.
    pub fn device_count(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> HashMap<DeviceIdRef<'_>, &HeldDevice> {
        let mut all = self.base.as_ref().map(|base| base.all()).unwrap_or_default();
        all.extend(self.by_id.iter().map(|(id, held)| (id.borrowed(), &**held)));
        all.retain(|_, held| !held.is_free());
        all
    }

    /// Whether a claim holds the whole device.
    pub fn holds_whole(&self, device: DeviceRef<'_>) -> bool {
        self.is_whole(device.index)
    }

    /// Whether claims have shares of the device.
    pub fn is_shared(&self, device: DeviceRef<'_>) -> bool {
        self.get(device.index).is_some_and(|held| held.shares > 0)
    }

    /// How much of a capacity shares of the device take, in billionths.
    pub fn shared(&self, device: DeviceRef<'_>, capacity: &str) -> Nanos {
        self.get(device.index).map_or(0, |held| held.consumed(capacity))
    }

    /// The claims that hold a device or a share of it: `namespace/name`.
    pub fn holders(&self, device: DeviceRef<'_>) -> &[String] {
        self.get(device.index).map_or(&[], |held| &held.holders)
    }
}

impl HeldDevice {
    /// How much of the capacity with this name is consumed.
    pub fn consumed(&self, capacity: &str) -> Nanos {
        self.consumed.iter().find(|(name, ..)| **name == *capacity).map_or(0, |(_, amount, _)| *amount)
    }

    fn is_free(&self) -> bool {
        self.whole == 0 && self.shares == 0
    }

    fn change(
        &mut self,
        result: &DeviceRequestAllocationResult,
        consumed: &[(&str, Nanos)],
        holder: &str,
        is_added: bool,
    ) {
        let count = |number: &mut u32| {
            *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
        };
        if is_added {
            self.holders.push(holder.to_owned());
        } else if let Some(place) = self.holders.iter().rposition(|other| other == holder) {
            self.holders.remove(place);
        }
        if result.share_id.is_none() {
            count(&mut self.whole);
            return;
        }
        count(&mut self.shares);
        if result.consumed_capacity.is_none() {
            return;
        }
        count(&mut self.capacity_shares);
        for (name, amount) in consumed {
            let place = match self.consumed.binary_search_by(|(known, ..)| (**known).cmp(name)) {
                Ok(place) => place,
                Err(place) => {
                    self.consumed.insert(place, ((*name).into(), 0, 0));
                    place
                }
            };
            let entry = &mut self.consumed[place];
            entry.1 = entry.1.saturating_add(if is_added { *amount } else { -*amount });
            count(&mut entry.2);
        }
        self.consumed.retain(|(.., shares)| *shares > 0);
    }
}

pub(crate) fn consumed(result: &DeviceRequestAllocationResult) -> Result<Vec<(&str, Nanos)>, ConvertError> {
    result
        .consumed_capacity
        .iter()
        .flatten()
        .map(|(name, quantity)| match Amount::parse(&quantity.0) {
            Ok(amount) => Ok((name.as_str(), amount.nanos())),
            Err(reason) => Err(ConvertError::Quantity {
                at: format!("result for device {}, capacity {name}, {:?}", result.device, quantity.0),
                reason,
            }),
        })
        .collect()
}
