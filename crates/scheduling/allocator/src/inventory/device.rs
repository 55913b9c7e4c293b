//! A device of the inventory.

use tessera_api::Quantity;
use tessera_cel::{AttributeValue, DeviceView, split_name};

use super::{Capacity, Consumption, Inventory, Shape, Value};
use crate::amount::Nanos;
use crate::names::Name;
use crate::node::NodeSelector;

/// Index of a device in the inventory.
pub(crate) type DeviceIndex = u32;

/// A device: its shape has the names of its attributes, the inventory's cells have the values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    pub name: Name,
    pub shape: u32,
    pub cells: u32,
    pub slice: u32,
    /// Index of its rare properties; [`NO_EXTRA`] for none.
    pub extra: u32,
    pub consumptions: u32,
    /// The value in place of [`OWN`] in its cells.
    pub identity: u32,
}

/// Placeholder for the value of an attribute identifying a card: devices alike but for this value share their cells.
pub(crate) const OWN: u32 = u32::MAX;

/// No [`Extra`].
pub(crate) const NO_EXTRA: u32 = u32::MAX;

/// Properties of few devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Extra {
    pub taints: Vec<Taint>,
    pub binding_conditions: Option<Vec<String>>,
    pub binding_failure_conditions: Option<Vec<String>>,
    pub binds_to_node: bool,
    pub node_name: Option<String>,
    pub all_nodes: bool,
    pub node_selector: Option<NodeSelector>,
    /// `consumesCounters` has entries, even if without a counter.
    pub has_consumptions: bool,
    /// Counter sets named without a counter.
    pub bare_sets: Vec<Name>,
}

/// A taint of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl Taint {
    /// Whether the taint repels requests without a toleration.
    pub fn keeps_away(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

/// A device of an inventory, as read by CEL selectors.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRef<'i> {
    pub(crate) inventory: &'i Inventory,
    pub(crate) index: DeviceIndex,
}

impl<'i> DeviceRef<'i> {
    fn record(&self) -> &'i Device {
        &self.inventory.devices[self.index as usize]
    }

    pub(crate) fn shape(&self) -> &'i Shape {
        &self.inventory.values.shapes.items[self.record().shape as usize]
    }

    /// Name of the driver.
    pub fn driver_name(&self) -> &'i str {
        self.inventory.text(self.shape().driver)
    }

    /// Name of the pool.
    pub fn pool(&self) -> &'i str {
        let slice = &self.inventory.slices[self.record().slice as usize];
        self.inventory.text(self.inventory.pools[slice.pool as usize].name)
    }

    /// Name.
    pub fn name(&self) -> &'i str {
        self.inventory.text(self.record().name)
    }

    /// `driver/pool/device`, as Kubernetes names it in texts.
    pub(crate) fn id_text(&self) -> String {
        format!("{}/{}/{}", self.driver_name(), self.pool(), self.name())
    }

    /// The node, if the slice names one.
    pub fn node_name(&self) -> Option<&'i str> {
        let slice = &self.inventory.slices[self.record().slice as usize];
        slice.node_name.map(|name| self.inventory.text(name))
    }

    /// The node named by the device itself, where its slice leaves the choice to each device.
    pub fn own_node_name(&self) -> Option<&'i str> {
        self.extra()?.node_name.as_deref()
    }

    /// Name of the slice.
    pub fn slice_name(&self) -> &'i str {
        &self.inventory.slices[self.record().slice as usize].name
    }

    /// The capacities as published: name, and the quantity's text.
    pub fn capacity_texts(&self) -> impl Iterator<Item = (&'i str, &'i str)> {
        let device = *self;
        device
            .capacities()
            .map(move |capacity| (device.inventory.text(capacity.name), capacity.amount.text()))
    }

    /// The counters taken by the device: counter set, counter and amount in billionths. Of a device shared by several
    /// claims, only the first share takes counters.
    pub fn counters(&self) -> impl Iterator<Item = (&'i str, &'i str, Nanos)> + use<'i> {
        let inventory = self.inventory;
        self.consumptions()
            .map(move |taken| (inventory.text(taken.set), inventory.text(taken.counter), taken.amount))
    }

    /// Names of the counters in the counter set of this name in the device's pool.
    pub fn counters_of_set(&self, set: &str) -> impl Iterator<Item = &'i str> + use<'i> {
        let inventory = self.inventory;
        let pool = &inventory.pools[inventory.slices[self.record().slice as usize].pool as usize];
        let name = inventory.names.find(set);
        let sets = pool.slices.iter().flat_map(|place| &inventory.slices[*place as usize].counter_sets);
        let found = sets.into_iter().find(|set| Some(set.name) == name);
        found.into_iter().flat_map(|set| &set.counters).map(|(counter, _)| inventory.text(*counter))
    }

    /// Whether the device has a taint with another key repelling requests without tolerations.
    pub fn is_tainted_besides(&self, key: &str) -> bool {
        self.taints().any(|taint| taint.key != key && taint.keeps_away())
    }

    /// Taints repelling requests without tolerations, except those with this key: `key` or `key=value`.
    pub fn taint_texts(&self, but: &str) -> Vec<String> {
        let taints = self.taints().filter(|taint| taint.key != but && taint.keeps_away());
        let text = |taint: &Taint| match taint.value.as_str() {
            "" => taint.key.clone(),
            value => format!("{}={value}", taint.key),
        };
        taints.map(text).collect()
    }

    /// The value of one of the driver's own attributes, if a string.
    pub fn text_attribute(&self, name: &str) -> Option<&'i str> {
        let place = self.shape().attributes.iter().position(|known| {
            let (domain, id) = split_name(self.inventory.text(*known), self.driver_name());
            domain == self.driver_name() && id == name
        })?;
        match self.inventory.values.attributes.items[self.cell(place) as usize] {
            Value::Text(text) => Some(self.inventory.text(text)),
            _ => None,
        }
    }

    /// Whether several claims can share the device.
    pub fn is_shareable(&self) -> bool {
        self.shape().allow_multiple_allocations
    }

    /// The amount of a capacity as published, in billionths.
    pub fn capacity(&self, name: &str) -> Option<Nanos> {
        Some(self.capacity_named(name)?.amount.nanos())
    }

    pub(crate) fn capacity_named(&self, name: &str) -> Option<&'i Capacity> {
        self.capacities().find(|capacity| self.inventory.text(capacity.name) == name)
    }

    pub(crate) fn shape_index(&self) -> u32 {
        self.record().shape
    }

    pub(crate) fn has_defect(&self) -> bool {
        !self.inventory.defects.is_empty() && self.inventory.defects.contains_key(&self.index)
    }

    /// The value of an attribute, or of a capacity behind the last attribute.
    pub(crate) fn cell(&self, place: usize) -> u32 {
        let record = self.record();
        let cell = self.inventory.cells[record.cells as usize + place];
        if cell == OWN { record.identity } else { cell }
    }

    pub(crate) fn extra(&self) -> Option<&'i Extra> {
        self.inventory.extras.items.get(self.record().extra as usize)
    }

    /// As stored, with [`OWN`]: attribute values, capacities, counter consumptions.
    pub(crate) fn stored_cells(&self) -> &'i [u32] {
        let (record, shape) = (self.record(), self.shape());
        let count = shape.attributes.len() + shape.capacities.len() + record.consumptions as usize;
        &self.inventory.cells[record.cells as usize..record.cells as usize + count]
    }

    pub(crate) fn capacity_cells(&self) -> &'i [u32] {
        let shape = self.shape();
        let start = self.record().cells as usize + shape.attributes.len();
        &self.inventory.cells[start..start + shape.capacities.len()]
    }

    pub(crate) fn consumption_cells(&self) -> &'i [u32] {
        let (record, shape) = (self.record(), self.shape());
        let start = record.cells as usize + shape.attributes.len() + shape.capacities.len();
        &self.inventory.cells[start..start + record.consumptions as usize]
    }

    pub(crate) fn capacities(&self) -> impl Iterator<Item = &'i Capacity> + use<'i> {
        let inventory = self.inventory;
        self.capacity_cells().iter().map(move |cell| &inventory.values.capacities[*cell as usize])
    }

    pub(crate) fn consumptions(&self) -> impl Iterator<Item = &'i Consumption> + use<'i> {
        let inventory = self.inventory;
        self.consumption_cells().iter().map(move |cell| &inventory.values.consumptions.items[*cell as usize])
    }

    pub(crate) fn has_consumptions(&self) -> bool {
        self.record().consumptions > 0 || self.extra().is_some_and(|extra| extra.has_consumptions)
    }
}

impl DeviceView for DeviceRef<'_> {
    fn driver(&self) -> &str {
        self.driver_name()
    }

    fn allow_multiple_allocations(&self) -> bool {
        self.shape().allow_multiple_allocations
    }

    fn attribute_count(&self) -> usize {
        self.shape().attributes.len()
    }

    fn attribute_at(&self, index: usize) -> (&str, &str, AttributeValue<'_>) {
        let (domain, name) =
            split_name(self.inventory.text(self.shape().attributes[index]), self.driver_name());
        let values = &self.inventory.values;
        let value = match values.attributes.items[self.cell(index) as usize] {
            Value::Int(value) => AttributeValue::Int(value),
            Value::Bool(value) => AttributeValue::Bool(value),
            Value::Text(text) => AttributeValue::String(self.inventory.text(text)),
            Value::Version(version) => match &values.versions[version as usize].parsed {
                Ok(version) => AttributeValue::Version(version),
                // The device's defect ends every evaluation before this is read.
                Err(reason) => AttributeValue::String(reason),
            },
            Value::Unknown => AttributeValue::Bool(false),
        };
        (domain, name, value)
    }

    fn capacity_count(&self) -> usize {
        self.shape().capacities.len()
    }

    fn capacity_at(&self, index: usize) -> (&str, &str, &Quantity) {
        let (domain, name) =
            split_name(self.inventory.text(self.shape().capacities[index]), self.driver_name());
        let cell = self.capacity_cells()[index];
        (domain, name, self.inventory.values.capacities[cell as usize].amount.quantity())
    }

    fn defect(&self) -> Option<&str> {
        self.inventory.defects.get(&self.index).map(String::as_str)
    }
}
