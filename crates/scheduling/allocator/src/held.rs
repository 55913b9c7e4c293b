//! Devices held by claims.

mod by_index;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use by_index::ByIndex;

use crate::amount::{Amount, Nanos};
use crate::convert::ConvertError;
use crate::inventory::{Change, DeviceIndex, DeviceRef, Inventory};

/// Claims' holdings of an inventory's devices, by the rules of kube-scheduler: admin access holds nothing, a share of
/// a device holds its consumed capacity, anything else the whole device.
///
/// Keyed by the devices' ids, so devices missing from the inventory (yet) are covered, too. The places of
/// these devices in one inventory are cached: pass every [`Change`] of the inventory, see [`Self::follow`].
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Used for devices that have no entry here.
    base: Option<Arc<Held>>,
    /// With a base, also has entries for devices no longer held.
    by_id: HashMap<DeviceId, Arc<HeldDevice>>,
    /// The same by index in the inventory.
    by_index: ByIndex,
}

/// Name of a holder of devices, only for reports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(Arc<str>);

/// One hold of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHold {
    id: DeviceId,
    /// `None` for the whole device.
    share: Option<Share>,
}

/// The capacity consumed by a share of a device, if any, by name.
type Share = Option<Box<[(Box<str>, Nanos)]>>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct DeviceId {
    driver: Box<str>,
    pool: Box<str>,
    device: Box<str>,
}

/// Driver, pool and name of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeviceIdRef<'t>(&'t str, &'t str, &'t str);

/// All holds of one device.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldDevice {
    /// Results with the whole device.
    pub whole: u32,
    /// Results with a share.
    pub shares: u32,
    /// Shares with consumed capacity; the device counts as shared only with one of these.
    pub capacity_shares: u32,
    /// Sum of consumed capacity by name, with the number of shares naming the capacity.
    consumed: Vec<(Box<str>, Nanos, u32)>,
    /// Its holders, one entry per hold, in order.
    pub holders: Vec<HolderId>,
}

impl From<&str> for HolderId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for HolderId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DeviceHold {
    /// The holds of these results of an allocation; admin access holds nothing.
    ///
    /// # Errors
    /// A consumed capacity is not a quantity.
    pub fn of(results: &[DeviceRequestAllocationResult]) -> Result<Vec<Self>, ConvertError> {
        let results = results.iter().filter(|result| result.admin_access != Some(true));
        let hold = |result: &DeviceRequestAllocationResult| {
            let consumed = consumed(result)?.into_iter().map(|(name, amount)| (name.into(), amount));
            let consumed = result.consumed_capacity.is_some().then(|| consumed.collect());
            let DeviceIdRef(driver, pool, device) = DeviceIdRef::from(result);
            let id = DeviceId { driver: driver.into(), pool: pool.into(), device: device.into() };
            Ok(Self { id, share: result.share_id.is_some().then_some(consumed) })
        };
        results.map(hold).collect()
    }

    /// The device's driver.
    pub fn driver(&self) -> &str {
        &self.id.driver
    }

    /// The device's pool.
    pub fn pool(&self) -> &str {
        &self.id.pool
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.id.device
    }

    /// Whether only a share of the device is held.
    pub fn is_share(&self) -> bool {
        self.share.is_some()
    }

    /// The amount of a capacity held by a share, in billionths.
    pub fn consumed(&self, capacity: &str) -> Option<Nanos> {
        let consumed = self.share.as_ref()?.as_ref()?;
        consumed.iter().find(|(name, _)| **name == *capacity).map(|(_, amount)| *amount)
    }
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
    /// Whether the same devices have the same holds.
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Held {
    /// Nothing is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy-on-write overlay of `base`, for the question whether ending a claim would help. The overlay does not follow
    /// changes of the inventory.
    pub fn over(base: Arc<Held>) -> Self {
        Held { base: Some(base), ..Held::default() }
    }

    /// Adds the holds of `claim.status.allocation`.
    ///
    /// # Errors
    /// A consumed capacity is not a quantity; the claim then has no holds.
    pub fn add(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.hold(inventory, &holder_of(claim), &holds_of(claim)?);
        Ok(())
    }

    /// Undoes [`Self::add`] for the same claim with the same allocation.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub fn remove(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.release(inventory, &holder_of(claim), &holds_of(claim)?);
        Ok(())
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
        for index in change.gone.clone() {
            self.by_index.remove(index);
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

    /// Adds the holder's holds of these devices.
    pub fn hold<'h>(
        &mut self,
        inventory: &Inventory,
        holder: &HolderId,
        devices: impl IntoIterator<Item = &'h DeviceHold>,
    ) {
        devices.into_iter().for_each(|device| self.change(inventory, holder, device, true));
    }

    /// Undoes [`Self::hold`].
    pub fn release<'h>(
        &mut self,
        inventory: &Inventory,
        holder: &HolderId,
        devices: impl IntoIterator<Item = &'h DeviceHold>,
    ) {
        devices.into_iter().for_each(|device| self.change(inventory, holder, device, false));
    }

    fn change(&mut self, inventory: &Inventory, holder: &HolderId, hold: &DeviceHold, is_added: bool) {
        let id = hold.id.borrowed();
        let mut held = self.of(id).cloned().unwrap_or_default();
        let device = Arc::make_mut(&mut held);
        device.change(hold, holder, is_added);
        let is_gone = device.is_free() && self.base.is_none();
        for index in inventory.indexes_of(id.0, id.1, id.2) {
            if is_gone {
                self.by_index.remove(index);
            } else {
                self.by_index.insert(index, Arc::clone(&held));
            }
        }
        if is_gone {
            self.by_id.remove(&id);
        } else if let Some(known) = self.by_id.get_mut(&id) {
            *known = held;
        } else {
            self.by_id.insert(hold.id.clone(), held);
        }
    }

    fn of(&self, id: DeviceIdRef<'_>) -> Option<&Arc<HeldDevice>> {
        self.by_id.get(&id).or_else(|| self.base.as_ref()?.of(id))
    }

    pub(crate) fn get(&self, index: DeviceIndex) -> Option<&HeldDevice> {
        match self.by_index.get(index) {
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

    /// Number of held devices, in the inventory or not.
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

    /// Amount of a capacity taken by shares of the device, in billionths.
    pub fn shared(&self, device: DeviceRef<'_>, capacity: &str) -> Nanos {
        self.get(device.index).map_or(0, |held| held.consumed(capacity))
    }

    /// Holders of the device or of a share.
    pub fn holders(&self, device: DeviceRef<'_>) -> &[HolderId] {
        self.get(device.index).map_or(&[], |held| &held.holders)
    }
}

impl HeldDevice {
    /// The consumed amount of the capacity with this name.
    pub fn consumed(&self, capacity: &str) -> Nanos {
        self.consumed.iter().find(|(name, ..)| **name == *capacity).map_or(0, |(_, amount, _)| *amount)
    }

    fn is_free(&self) -> bool {
        self.whole == 0 && self.shares == 0
    }

    fn change(&mut self, hold: &DeviceHold, holder: &HolderId, is_added: bool) {
        let count = |number: &mut u32| {
            *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
        };
        if is_added {
            self.holders.push(holder.clone());
        } else if let Some(place) = self.holders.iter().rposition(|other| other == holder) {
            self.holders.remove(place);
        }
        let Some(share) = &hold.share else {
            count(&mut self.whole);
            return;
        };
        count(&mut self.shares);
        let Some(consumed) = share else { return };
        count(&mut self.capacity_shares);
        for (name, amount) in consumed {
            let place = match self.consumed.binary_search_by(|(known, ..)| known.cmp(name)) {
                Ok(place) => place,
                Err(place) => {
                    self.consumed.insert(place, (name.clone(), 0, 0));
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

impl PartialEq for HeldDevice {
    /// Whether both have the same holds by the same holders, in any order.
    fn eq(&self, other: &Self) -> bool {
        let sorted = |device: &Self| {
            let mut holders = device.holders.clone();
            holders.sort();
            holders
        };
        let Self { whole, shares, capacity_shares, consumed, holders: _ } = self;
        (*whole, *shares, *capacity_shares) == (other.whole, other.shares, other.capacity_shares)
            && *consumed == other.consumed
            && sorted(self) == sorted(other)
    }
}

/// `namespace/name` of the claim, or the name alone.
fn holder_of(claim: &ResourceClaim) -> HolderId {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claim.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

fn holds_of(claim: &ResourceClaim) -> Result<Vec<DeviceHold>, ConvertError> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    DeviceHold::of(devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default())
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
