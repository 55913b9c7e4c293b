//! All devices that drivers publish, small enough to hold a large cluster's.

mod builder;
mod device;
mod value;

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::names::{Name, Names};
use crate::node::NodeSelector;

pub use builder::InventoryBuilder;
pub use device::DeviceRef;
pub(crate) use device::{Device, DeviceIndex, Extra, NO_EXTRA, Taint};
pub(crate) use value::{Capacity, Consumption, Distinct, Policy, Range, Shape, Value, Values, Version};

/// Devices of all slices, with indexes by node and pool. Never changes; build another when slices change.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Tells this inventory from others: memoised answers of selectors are about one inventory.
    pub(crate) identity: Arc<()>,
    pub(crate) names: Names,
    pub(crate) values: Values,
    pub(crate) extras: Distinct<Extra>,
    pub(crate) devices: Vec<Device>,
    /// Attribute values, capacities and counter consumptions of each device, in this order.
    pub(crate) cells: Vec<u32>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) on_node: HashMap<Name, Vec<u32>>,
    pub(crate) shared: Vec<u32>,
    pub(crate) pools: Vec<PoolSlices>,
    pub(crate) by_id: HashTable<DeviceIndex>,
    /// Further devices with an id that another device has, too.
    pub(crate) same_id: HashMap<DeviceIndex, Vec<DeviceIndex>>,
    pub(crate) hasher: DefaultHashBuilder,
    pub(crate) defects: HashMap<DeviceIndex, String>,
}

/// A ResourceSlice without its devices, which are `inventory.devices[first_device..end_device]`.
#[derive(Debug)]
pub(crate) struct Slice {
    pub name: String,
    /// Place of the name among all slices' names.
    pub rank: u32,
    pub pool: u32,
    pub generation: i64,
    pub resource_slice_count: i64,
    pub node_name: Option<Name>,
    pub node_selector: Option<Box<NodeSelector>>,
    pub all_nodes: bool,
    pub per_device: Option<bool>,
    pub counter_sets: Vec<CounterSet>,
    pub first_device: DeviceIndex,
    pub end_device: DeviceIndex,
    /// A device has binding conditions, even an empty list of them.
    pub has_binding_conditions: bool,
}

impl Slice {
    /// Number of its devices.
    pub fn device_count(&self) -> u32 {
        self.end_device - self.first_device
    }
}

/// A counter set of a pool.
#[derive(Debug)]
pub(crate) struct CounterSet {
    pub name: Name,
    pub counters: Vec<(Name, i128)>,
}

/// All slices of one driver's pool, of every generation, in the order in which they were given.
#[derive(Debug)]
pub(crate) struct PoolSlices {
    pub driver: Name,
    pub name: Name,
    /// Place among all pools by driver and name.
    pub rank: u32,
    pub slices: Vec<u32>,
    pub newest: i64,
    /// The slices of the newest generation together have no fault, so no part of them has one.
    pub is_valid: bool,
}

/// How many bytes an inventory takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Number of devices.
    pub devices: usize,
    /// Bytes in all, on the heap.
    pub bytes: usize,
}

impl Inventory {
    /// Number of devices.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// All devices, slice by slice.
    pub fn devices(&self) -> impl Iterator<Item = DeviceRef<'_>> {
        (0..self.devices.len() as u32).map(|index| DeviceRef { inventory: self, index })
    }

    /// Names of the nodes that have slices of their own.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.on_node.keys().map(|name| self.names.text(*name))
    }

    /// The devices with this id; more than one while a driver replaces its slices.
    pub fn find(&self, driver: &str, pool: &str, device: &str) -> impl Iterator<Item = DeviceRef<'_>> {
        self.indexes_of(driver, pool, device).into_iter().map(|index| DeviceRef { inventory: self, index })
    }

    pub(crate) fn indexes_of(&self, driver: &str, pool: &str, device: &str) -> Vec<DeviceIndex> {
        let (Some(driver), Some(pool), Some(device)) =
            (self.names.find(driver), self.names.find(pool), self.names.find(device))
        else {
            return Vec::new();
        };
        let id = (driver, pool, device);
        let hash = builder::hash_id(&self.hasher, id);
        let Some(first) = self.by_id.find(hash, |index| self.id(*index) == id) else { return Vec::new() };
        let mut all = vec![*first];
        all.extend(self.same_id.get(first).into_iter().flatten());
        all
    }

    pub(crate) fn id(&self, index: DeviceIndex) -> (Name, Name, Name) {
        let device = &self.devices[index as usize];
        let pool = &self.pools[self.slices[device.slice as usize].pool as usize];
        (pool.driver, pool.name, device.name)
    }

    pub(crate) fn text(&self, name: Name) -> &str {
        self.names.text(name)
    }

    /// What it takes in memory.
    pub fn footprint(&self) -> Footprint {
        let slices: usize = self
            .slices
            .iter()
            .map(|slice| {
                size_of::<Slice>()
                    + slice.name.capacity()
                    + slice.counter_sets.capacity() * size_of::<CounterSet>()
                    + slice
                        .counter_sets
                        .iter()
                        .map(|set| set.counters.capacity() * size_of::<(Name, i128)>())
                        .sum::<usize>()
            })
            .sum();
        let pools: usize =
            self.pools.iter().map(|pool| size_of::<PoolSlices>() + pool.slices.capacity() * 4).sum();
        let nodes: usize = self.on_node.values().map(|slices| 40 + slices.capacity() * 4).sum();
        let bytes = self.names.bytes()
            + self.values.bytes()
            + self.extras.bytes()
            + self.devices.capacity() * size_of::<Device>()
            + self.cells.capacity() * 4
            + self.by_id.capacity() * 5
            + slices
            + pools
            + nodes;
        Footprint { devices: self.devices.len(), bytes }
    }
}
