//! All published devices, compact enough for a large cluster.

mod change;
mod compact;
mod device;
mod kind;
mod taint_rules;
mod value;

use std::sync::{Arc, OnceLock};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::names::{Name, Names};
use crate::node::NodeSelector;

pub use change::Change;
pub use device::DeviceRef;
pub use kind::SliceKind;
use taint_rules::TaintRule;

pub(crate) use device::{Device, DeviceIndex, Extra, NO_EXTRA, OWN, Taint};
pub(crate) use kind::is_identity;
pub(crate) use value::{Capacity, Consumption, Distinct, Policy, Range, Shape, Value, Values, Version};

/// Devices of all slices, with indexes by node and pool. Slices are added by [`Self::add`], replaced by
/// [`Self::update`] and removed by [`Self::remove`] at any time. The answers always equal those of an inventory built anew from
/// its slices in their order; an updated slice keeps its place.
///
/// A device's index stays the same until its slice is updated or removed. Indices also change when garbage outnumbers
/// devices. Every change returns a [`Change`] with the changed indices, to be followed by every structure with device
/// indices, as [`crate::held::Held`] does by its `follow`. A [`DeviceRef`] borrows the
/// inventory and so cannot outlive a change.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Identifies this inventory: selectors' cached answers are valid for one inventory.
    pub(crate) identity: Arc<()>,
    pub(crate) names: Names,
    pub(crate) values: Values,
    pub(crate) extras: Distinct<Extra>,
    pub(crate) devices: Vec<Device>,
    /// Attribute values, capacities and counter consumptions of devices, in this order. Slices of one kind share theirs.
    pub(crate) cells: Vec<u32>,
    /// By kind: the first of its cells.
    cells_of_kinds: HashMap<SliceKind, u32>,
    pub(crate) slices: Vec<Slice>,
    /// Slices for one node only, by node, and the subset with counters, of all nodes.
    pub(crate) on_node: HashMap<Name, Vec<u32>>,
    pub(crate) counters_on_nodes: Vec<u32>,
    /// Slices without a node name, by place.
    pub(crate) shared: Vec<u32>,
    pub(crate) pools: Vec<PoolSlices>,
    pub(crate) pool_index: HashMap<(Name, Name), u32>,
    /// Slices by name.
    pub(crate) by_name: HashTable<u32>,
    pub(crate) by_id: HashTable<DeviceIndex>,
    /// Further devices with the id of another device.
    pub(crate) same_id: HashMap<DeviceIndex, Vec<DeviceIndex>>,
    pub(crate) hasher: DefaultHashBuilder,
    pub(crate) defects: HashMap<DeviceIndex, String>,
    /// Taints added to devices by DeviceTaintRules.
    pub(crate) taint_rules: Vec<TaintRule>,
    /// Slices and devices of slices.
    in_use: usize,
    /// Slices and devices still in memory after removal.
    garbage: usize,
}

/// A ResourceSlice without its devices, which are `inventory.devices[first_device..end_device]`. The default value
/// stands for a removed slice.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Added, and not removed.
    pub is_there: bool,
    pub name: String,
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
    /// A device has compatibility groups.
    pub has_compatibility_groups: bool,
    /// A device has binding conditions, even an empty list of them.
    pub has_binding_conditions: bool,
    pub kind: SliceKind,
}

impl Slice {
    /// Number of its devices.
    pub fn device_count(&self) -> u32 {
        self.end_device - self.first_device
    }

    /// The node, if the slice is for one node only.
    fn own_node(&self, names: &Names) -> Option<Name> {
        self.node_name.filter(|name| !names.text(*name).is_empty())
    }
}

/// A counter set of a pool.
#[derive(Debug)]
pub(crate) struct CounterSet {
    pub name: Name,
    pub counters: Vec<(Name, i128)>,
}

/// All slices of one driver's pool, of every generation, in the order of adding.
#[derive(Debug)]
pub(crate) struct PoolSlices {
    pub driver: Name,
    pub name: Name,
    pub slices: Vec<u32>,
    /// Their newest generation.
    pub newest: i64,
    /// See [`Inventory::is_faultless`].
    is_faultless: OnceLock<bool>,
}

/// Memory of an inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Number of devices.
    pub devices: usize,
    /// Bytes on the heap.
    pub bytes: usize,
}

impl Inventory {
    /// Number of devices.
    pub fn device_count(&self) -> usize {
        self.slices.iter().map(|slice| slice.device_count() as usize).sum()
    }

    /// All devices, slice by slice.
    pub fn devices(&self) -> impl Iterator<Item = DeviceRef<'_>> {
        let indexes = self.slices.iter().flat_map(|slice| slice.first_device..slice.end_device);
        indexes.map(|index| DeviceRef { inventory: self, index })
    }

    /// Names of the nodes that have slices of their own.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.on_node.keys().map(|name| self.names.text(*name))
    }

    /// The node named by a slice, if any.
    pub fn node_of_slice(&self, slice: &str) -> Option<&str> {
        let place = self.place_of(slice)?;
        self.slices[place as usize].node_name.map(|name| self.names.text(name))
    }

    /// The devices in the slices for this node alone, slice by slice.
    pub fn devices_of_node(&self, node: &str) -> impl Iterator<Item = DeviceRef<'_>> {
        let slices = self.names.find(node).and_then(|name| self.on_node.get(&name));
        let indexes = slices.into_iter().flatten().flat_map(|place| {
            let slice = &self.slices[*place as usize];
            slice.first_device..slice.end_device
        });
        indexes.map(|index| DeviceRef { inventory: self, index })
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
        let hash = change::hash_id(&self.hasher, id);
        let Some(first) = self.by_id.find(hash, |index| self.id(*index) == id) else { return Vec::new() };
        let mut all = vec![*first];
        all.extend(self.same_id.get(first).into_iter().flatten());
        all
    }

    pub(crate) fn id(&self, index: DeviceIndex) -> (Name, Name, Name) {
        let pool = &self.pools[self.slice_of(index).pool as usize];
        (pool.driver, pool.name, self.devices[index as usize].name)
    }

    /// Whether the device is published, not removed and still in memory.
    pub(crate) fn is_there(&self, index: DeviceIndex) -> bool {
        let slice = self.slice_of(index);
        slice.is_there && (slice.first_device..slice.end_device).contains(&index)
    }

    pub(crate) fn slice_of(&self, index: DeviceIndex) -> &Slice {
        &self.slices[self.devices[index as usize].slice as usize]
    }

    pub(crate) fn text(&self, name: Name) -> &str {
        self.names.text(name)
    }

    /// Its memory.
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
            + self.cells_of_kinds.capacity() * (size_of::<(SliceKind, u32)>() + 1)
            + (self.by_id.capacity() + self.by_name.capacity()) * 5
            + self.pool_index.capacity() * 13
            + slices
            + pools
            + nodes;
        Footprint { devices: self.device_count(), bytes }
    }
}
