//! The only index of devices and room in use, by holder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tessera_allocator::held::{DeviceHold, Held, HolderId};
use tessera_allocator::inventory::Inventory;

use crate::charge::{CardClass, Charge, Charges};
use crate::claim::ClaimExt;
use crate::error::ObjectError;
use crate::holder::Holder;
use crate::pod::PodExt;
use crate::usage::{PodRoom, Usages};
use crate::worth::Worth;

/// Devices and room taken by a holder.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    devices: Vec<DeviceHold>,
    /// A node, with the room taken on the node.
    room: Option<(String, PodRoom)>,
    /// Computed when the devices are taken first.
    charge: Option<Charge>,
}

impl PartialEq for Hold {
    /// The charge follows from the devices.
    fn eq(&self, other: &Self) -> bool {
        self.devices == other.devices && self.room == other.room
    }
}

/// An earlier hold, with the nodes affected by its replacement.
#[derive(Debug)]
pub struct Replaced {
    /// The earlier hold, if any.
    pub before: Option<Hold>,
    /// The nodes of either hold.
    pub nodes: BTreeSet<String>,
}

/// The hold of each holder, and the resulting use of each device and node.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    holds: BTreeMap<Holder, Hold>,
    /// Holders of devices, by their ids in `held`.
    holders: HashMap<HolderId, Holder>,
    held: Arc<Held>,
    usages: Usages,
    charges: Charges,
}

impl Hold {
    /// The devices allocated to the claim.
    ///
    /// # Errors
    /// A consumed capacity is not a quantity.
    pub fn of_claim(claim: &ResourceClaim) -> Result<Self, ObjectError> {
        let devices = DeviceHold::of(claim.results()).map_err(|error| ObjectError::of_claim(claim, error))?;
        Ok(Self { devices, ..Self::default() })
    }

    /// The pod's room on its node; nothing if the pod has no node, or has finished.
    pub fn of_pod(pod: &Pod) -> Self {
        let node = pod.node_name().filter(|_| !pod.is_finished());
        node.map(|node| Self::on(node, pod)).unwrap_or_default()
    }

    /// The pod's room if run on the node.
    pub fn on(node: &str, pod: &Pod) -> Self {
        Self { room: Some((node.to_owned(), PodRoom::of(pod))), ..Self::default() }
    }

    /// Adds these whole devices.
    pub fn with_whole(mut self, devices: &[DeviceRequestAllocationResult]) -> Self {
        // Cannot fail: only shares have quantities.
        self.devices.extend(DeviceHold::of(devices).unwrap_or_default());
        self
    }

    /// The room taken, by name of the resource, in billionths of a unit.
    pub fn requested(&self) -> impl Iterator<Item = (&str, i128)> {
        self.room.iter().flat_map(|(_, room)| room.requested())
    }

    /// What each of its devices is worth, while devices are charged for.
    pub fn charge(&self) -> impl Iterator<Item = (&CardClass, Worth)> {
        self.charge.iter().flat_map(Charge::parts)
    }

    /// The node on which room is taken.
    pub fn node(&self) -> Option<&str> {
        self.room.as_ref().map(|(node, _)| node.as_str())
    }

    fn is_nothing(&self) -> bool {
        self.devices.is_empty() && self.room.is_none()
    }

    /// Adds the nodes of the devices and room.
    fn nodes(&self, inventory: &Inventory, nodes: &mut BTreeSet<String>) {
        nodes.extend(self.room.iter().map(|(node, _)| node.clone()));
        for device in &self.devices {
            let found = inventory.find(device.driver(), device.pool(), device.device());
            nodes.extend(found.filter_map(|device| device.node_name().map(str::to_owned)));
        }
    }
}

impl Taken {
    /// Replaces the hold of the holder. Returns the earlier hold with the nodes affected; `None` if nothing changes.
    pub fn set(&mut self, inventory: &Inventory, holder: &Holder, hold: Option<Hold>) -> Option<Replaced> {
        let mut hold = hold.filter(|hold| !hold.is_nothing());
        if self.holds.get(holder) == hold.as_ref() {
            return None;
        }
        let mut nodes = BTreeSet::new();
        let before = self.holds.remove(holder);
        for hold in before.iter().chain(&hold) {
            hold.nodes(inventory, &mut nodes);
        }
        let id = holder.id();
        let has_devices = |hold: &Option<Hold>| hold.as_ref().is_some_and(|hold| !hold.devices.is_empty());
        if has_devices(&before) || has_devices(&hold) {
            let held = Arc::make_mut(&mut self.held);
            // Hold before releasing: devices in both holds are never free in between, and keep their entries.
            held.hold(inventory, &id, hold.iter().flat_map(|hold| &hold.devices));
            held.release(inventory, &id, before.iter().flat_map(|hold| &hold.devices));
        }
        if has_devices(&hold) {
            self.holders.insert(id, holder.clone());
        } else {
            self.holders.remove(&id);
        }
        if let Some((node, room)) = before.as_ref().and_then(|hold| hold.room.as_ref()) {
            self.usages.release(node, room);
        }
        if let Some((node, room)) = hold.as_ref().and_then(|hold| hold.room.as_ref()) {
            self.usages.hold(node, room);
        }
        if let Some(charge) = before.as_ref().and_then(|hold| hold.charge.as_ref()) {
            self.charges.remove(holder, charge);
        }
        if let Some(hold) = &mut hold {
            hold.charge = hold.charge.take().or_else(|| self.charges.of(inventory, &hold.devices));
            if let Some(charge) = &hold.charge {
                self.charges.add(holder, charge);
            }
        }
        if let Some(hold) = hold {
            self.holds.insert(holder.clone(), hold);
        }
        Some(Replaced { before, nodes })
    }

    /// The hold of the holder, if any.
    pub fn get(&self, holder: &Holder) -> Option<&Hold> {
        self.holds.get(holder)
    }

    /// The holder with this id in [`Self::held`].
    pub fn holder(&self, id: &HolderId) -> Option<&Holder> {
        self.holders.get(id)
    }

    /// Devices in use.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Mutable access, to follow changes of the inventory.
    pub fn held_mut(&mut self) -> &mut Held {
        Arc::make_mut(&mut self.held)
    }

    /// What the holders of each namespace are charged for.
    pub fn charges(&self) -> &Charges {
        &self.charges
    }

    /// Charges for this driver's devices from now on, or for none.
    pub fn charge_for(&mut self, inventory: &Inventory, driver: Option<&str>) {
        if self.charges.set_driver(driver) {
            let all: Vec<Holder> = self.holds.keys().cloned().collect();
            self.charge_anew(inventory, all);
        }
    }

    /// Charges anew for devices that were unknown.
    pub fn charge_guessed_anew(&mut self, inventory: &Inventory) {
        let guessed: Vec<Holder> = self.charges.guessed().cloned().collect();
        self.charge_anew(inventory, guessed);
    }

    fn charge_anew(&mut self, inventory: &Inventory, holders: Vec<Holder>) {
        for holder in holders {
            let Some(hold) = self.holds.get_mut(&holder) else { continue };
            if let Some(charge) = hold.charge.take() {
                self.charges.remove(&holder, &charge);
            }
            hold.charge = self.charges.of(inventory, &hold.devices);
            if let Some(charge) = &hold.charge {
                self.charges.add(&holder, charge);
            }
        }
    }

    /// Room in use.
    pub fn usages(&self) -> &Usages {
        &self.usages
    }

    /// Description of the first difference from an index built from the same holds.
    pub fn difference(&self, other: &Taken) -> Option<String> {
        let known = self.holds.keys().chain(other.holds.keys());
        if let Some(holder) =
            known.into_iter().find(|holder| self.holds.get(holder) != other.holds.get(holder))
        {
            let (one, other) = (self.holds.get(holder), other.holds.get(holder));
            return Some(format!("{holder} takes {one:?}, and should take {other:?}"));
        }
        if self.held != other.held {
            return Some("of some device something else is taken than its holders take".to_owned());
        }
        if self.usages != other.usages {
            return Some("of some node something else is taken than its pods take".to_owned());
        }
        let charges = self.holds.iter().map(|(holder, hold)| (holder, hold.charge.as_ref()));
        (!self.charges.are_of(charges))
            .then(|| "some namespace is charged for something else than its holders take".to_owned())
    }
}
