//! What claims hold already.

use hashbrown::HashMap;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use crate::amount::{Amount, Nanos};
use crate::convert::ConvertError;
use crate::inventory::{DeviceIndex, DeviceRef, Inventory};
use crate::names::Name;

/// What claims hold of an inventory's devices, by the rules of kube-scheduler: admin access holds nothing, a share of
/// a device holds its consumed capacity, anything else the whole device.
///
/// Results for devices that the inventory does not have hold nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    devices: HashMap<DeviceIndex, HeldDevice>,
}

/// What is held of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldDevice {
    /// Results that hold the whole device.
    pub whole: u32,
    /// Results that hold a share.
    pub shares: u32,
    /// Shares with consumed capacity; the device counts as shared only with one of these.
    pub capacity_shares: u32,
    /// Sum of consumed capacity, with how many shares name it.
    pub consumed: Vec<(Name, Nanos, u32)>,
    /// Who holds it: `namespace/name` of claims, one entry a result, in order.
    pub holders: Vec<String>,
}

impl Held {
    /// Nothing is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what `claim.status.allocation` says.
    ///
    /// # Errors
    /// A consumed capacity is not a quantity; nothing of the claim is then held.
    pub fn add(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.change(inventory, claim, true)
    }

    /// Gives back what [`Self::add`] took for the same claim with the same allocation.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub fn remove(&mut self, inventory: &Inventory, claim: &ResourceClaim) -> Result<(), ConvertError> {
        self.change(inventory, claim, false)
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
            changes.push((result, consumed(inventory, result)?));
        }
        for (result, consumed) in changes {
            for index in inventory.indexes_of(&result.driver, &result.pool, &result.device) {
                let device = self.devices.entry(index).or_default();
                device.change(result, &consumed, &holder, is_added);
                if device.whole == 0 && device.shares == 0 {
                    self.devices.remove(&index);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, index: DeviceIndex) -> Option<&HeldDevice> {
        if self.devices.is_empty() { None } else { self.devices.get(&index) }
    }

    pub(crate) fn is_whole(&self, index: DeviceIndex) -> bool {
        self.get(index).is_some_and(|device| device.whole > 0)
    }

    /// Number of devices of which something is held.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Who holds a device, wholly or a share of it: `namespace/name` of claims.
    pub fn holders(&self, device: DeviceRef<'_>) -> &[String] {
        self.get(device.index).map_or(&[], |held| &held.holders)
    }
}

impl HeldDevice {
    fn change(
        &mut self,
        result: &DeviceRequestAllocationResult,
        consumed: &[(Option<Name>, Nanos)],
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
            let Some(name) = *name else { continue };
            if !self.consumed.iter().any(|(known, ..)| *known == name) {
                self.consumed.push((name, 0, 0));
                self.consumed.sort_unstable();
            }
            let Some(entry) = self.consumed.iter_mut().find(|(known, ..)| *known == name) else { continue };
            entry.1 = entry.1.saturating_add(if is_added { *amount } else { -*amount });
            count(&mut entry.2);
        }
        self.consumed.retain(|(.., shares)| *shares > 0);
    }
}

fn consumed(
    inventory: &Inventory,
    result: &DeviceRequestAllocationResult,
) -> Result<Vec<(Option<Name>, Nanos)>, ConvertError> {
    result
        .consumed_capacity
        .iter()
        .flatten()
        .map(|(name, quantity)| match Amount::parse(&quantity.0) {
            // A capacity that no device has matters to none.
            Ok(amount) => Ok((inventory.names.find(name), amount.nanos())),
            Err(reason) => Err(ConvertError::Quantity {
                at: format!("result for device {}, capacity {name}, {:?}", result.device, quantity.0),
                reason,
            }),
        })
        .collect()
}
