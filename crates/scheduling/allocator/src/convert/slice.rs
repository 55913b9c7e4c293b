//! Reads ResourceSlices into the inventory.

use k8s_openapi::api::resource::v1::{self, DeviceAttribute, ResourceSlice};

use super::ConvertError;
use crate::amount::Amount;
use crate::inventory::{
    Capacity, Change, Consumption, CounterSet, Device, Extra, Inventory, NO_EXTRA, OWN, Policy, Range, Shape,
    Slice, SliceKind, Taint, Value, Version, is_identity,
};
use crate::names::Name;

/// Largest number of devices, and of cells (attribute values, capacities, consumptions), in an inventory.
const MOST: u32 = u32::MAX - 1;

fn amount(quantity: &str, at: impl Fn() -> String) -> Result<Amount, ConvertError> {
    Amount::parse(quantity).map_err(|reason| ConvertError::Quantity { at: at(), reason })
}

impl From<&v1::DeviceTaint> for Taint {
    fn from(taint: &v1::DeviceTaint) -> Self {
        Taint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
        }
    }
}

impl Inventory {
    /// Adds a slice after all others. The order of slices matters in one case, as in Kubernetes: where the slices of a
    /// pool disagree about their number, the first one that concerns the node counts.
    ///
    /// # Errors
    /// An invalid quantity, or too many devices; the inventory is then as before.
    pub fn add(&mut self, slice: &ResourceSlice) -> Result<Change, ConvertError> {
        self.put(self.slices.len() as u32, slice)
    }

    /// Replaces the slice of the same name, in its place; like [`Self::add`] if there is none.
    ///
    /// # Errors
    /// As for [`Self::add`].
    pub fn update(&mut self, slice: &ResourceSlice) -> Result<Change, ConvertError> {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        self.put(self.place_of(name).unwrap_or(self.slices.len() as u32), slice)
    }

    fn put(&mut self, place: u32, slice: &ResourceSlice) -> Result<Change, ConvertError> {
        let before = (self.devices.len(), self.cells.len());
        match self.read(place, slice) {
            Ok(read) => Ok(self.put_in(place, read)),
            Err(error) => {
                self.devices.truncate(before.0);
                self.cells.truncate(before.1);
                self.defects.retain(|index, _| (*index as usize) < before.0);
                Err(error)
            }
        }
    }

    /// Reads the slice and appends its devices.
    fn read(&mut self, place: u32, slice: &ResourceSlice) -> Result<Slice, ConvertError> {
        let spec = &slice.spec;
        let slice_name = slice.metadata.name.clone().unwrap_or_default();
        let driver = self.names.intern(&spec.driver);
        let pool_name = self.names.intern(&spec.pool.name);
        let mut counter_sets = Vec::new();
        for set in spec.shared_counters.iter().flatten() {
            let name = self.names.intern(&set.name);
            let mut counters = Vec::with_capacity(set.counters.len());
            for (counter, value) in &set.counters {
                let value = amount(&value.value.0, || {
                    format!("slice {slice_name}, counter set {}, counter {counter}", set.name)
                })?;
                counters.push((self.names.intern(counter), value.nanos()));
            }
            counter_sets.push(CounterSet { name, counters });
        }
        let first_device = self.devices.len() as u32;
        for device in spec.devices.iter().flatten() {
            self.add_device(device, driver, place, &slice_name)?;
        }
        Ok(Slice {
            is_there: true,
            name: slice_name,
            pool: self.pool(driver, pool_name),
            generation: spec.pool.generation,
            resource_slice_count: spec.pool.resource_slice_count,
            node_name: spec.node_name.as_ref().map(|name| self.names.intern(name)),
            node_selector: spec.node_selector.as_ref().map(|selector| Box::new(selector.into())),
            all_nodes: spec.all_nodes.unwrap_or(false),
            per_device: spec.per_device_node_selection,
            counter_sets,
            first_device,
            end_device: self.devices.len() as u32,
            has_compatibility_groups: spec
                .devices
                .iter()
                .flatten()
                .flat_map(|device| device.consumes_counters.iter().flatten())
                .any(|taken| taken.compatibility_groups.as_ref().is_some_and(|groups| !groups.is_empty())),
            has_binding_conditions: spec
                .devices
                .iter()
                .flatten()
                .any(|device| device.binding_conditions.is_some()),
            kind: SliceKind::default(),
        })
    }

    fn add_device(
        &mut self,
        device: &v1::Device,
        driver: Name,
        slice: u32,
        slice_name: &str,
    ) -> Result<(), ConvertError> {
        let index = self.devices.len() as u32;
        if index >= MOST || self.cells.len() >= MOST as usize {
            return Err(ConvertError::TooMany(MOST));
        }
        let at = |what: &str| format!("slice {slice_name}, device {}, {what}", device.name);
        let name = self.names.intern(&device.name);
        let cells = self.cells.len() as u32;
        let mut attributes = Vec::new();
        let mut identity = None;
        for (key, attribute) in device.attributes.iter().flatten() {
            let (value, fault) = self.attribute_value(attribute);
            // A faulty value gives other answers than a sound one, so the value is part of the slice's kind.
            let is_own = fault.is_none() && identity.is_none() && is_identity(key);
            if let Some(fault) = fault {
                self.defects.entry(index).or_insert_with(|| format!("attribute {key}: {fault}"));
            }
            let cell = self.values.attributes.intern(value);
            if is_own {
                identity = Some(cell);
                self.cells.push(OWN);
            } else {
                self.cells.push(cell);
            }
            attributes.push(self.names.intern(key));
        }
        let mut capacities = Vec::new();
        for (key, capacity) in device.capacity.iter().flatten() {
            let capacity_name = self.names.intern(key);
            let cell = self.capacity(capacity_name, capacity, || at(&format!("capacity {key}")))?;
            self.cells.push(cell);
            capacities.push(capacity_name);
        }
        let mut consumptions = 0;
        let mut bare_sets = Vec::new();
        for consumption in device.consumes_counters.iter().flatten() {
            let set = self.names.intern(&consumption.counter_set);
            if consumption.counters.is_empty() {
                bare_sets.push(set);
            }
            for (counter, value) in &consumption.counters {
                let taken = amount(&value.value.0, || at(&format!("counter {counter}")))?;
                let counter = self.names.intern(counter);
                let cell =
                    self.values.consumptions.intern(Consumption { set, counter, amount: taken.nanos() });
                self.cells.push(cell);
                consumptions += 1;
            }
        }
        let shape = Shape {
            driver,
            allow_multiple_allocations: device.allow_multiple_allocations.unwrap_or(false),
            attributes: attributes.into(),
            capacities: capacities.into(),
        };
        let shape = self.values.shapes.intern(shape);
        let extra = self.extra(device, bare_sets);
        self.devices.push(Device {
            name,
            shape,
            cells,
            slice,
            extra,
            consumptions,
            identity: identity.unwrap_or(OWN),
        });
        Ok(())
    }

    fn attribute_value(&mut self, attribute: &DeviceAttribute) -> (Value, Option<String>) {
        if let Some(value) = attribute.int {
            return (Value::Int(value), None);
        }
        if let Some(value) = attribute.bool {
            return (Value::Bool(value), None);
        }
        if let Some(text) = &attribute.string {
            return (Value::Text(self.names.intern(text)), None);
        }
        let Some(text) = &attribute.version else {
            return (Value::Unknown, Some("unsupported attribute value".to_owned()));
        };
        let name = self.names.intern(text);
        let versions = &mut self.values.versions;
        let version = *self.values.version_index.entry(name).or_insert_with(|| {
            let parsed =
                tessera_cel::Version::parse(text).map_err(|error| format!("parse semantic version: {error}"));
            versions.push(Version { parsed });
            versions.len() as u32 - 1
        });
        let fault = self.values.versions[version as usize].parsed.as_ref().err().cloned();
        (Value::Version(version), fault)
    }

    fn capacity(
        &mut self,
        name: Name,
        capacity: &v1::DeviceCapacity,
        at: impl Fn() -> String,
    ) -> Result<u32, ConvertError> {
        let parse = |quantity: &str| amount(quantity, &at);
        let value = parse(&capacity.value.0)?;
        let policy = match &capacity.request_policy {
            None => None,
            Some(policy) => Some(Policy {
                default: policy.default.as_ref().map(|value| parse(&value.0)).transpose()?,
                range: match &policy.valid_range {
                    None => None,
                    Some(range) => Some(Range {
                        min: parse(&range.min.0)?,
                        max: range.max.as_ref().map(|value| parse(&value.0)).transpose()?,
                        step: range.step.as_ref().map(|value| parse(&value.0)).transpose()?,
                    }),
                },
                values: policy
                    .valid_values
                    .iter()
                    .flatten()
                    .map(|value| parse(&value.0))
                    .collect::<Result<_, _>>()?,
                has_values: policy.valid_values.is_some(),
            }),
        };
        let key = (name, value, policy);
        if let Some(index) = self.values.capacity_index.get(&key) {
            return Ok(*index);
        }
        let index = self.values.capacities.len() as u32;
        let (_, amount, policy) = key.clone();
        self.values.capacities.push(Capacity { name, amount, policy });
        self.values.capacity_index.insert(key, index);
        Ok(index)
    }

    fn extra(&mut self, device: &v1::Device, bare_sets: Vec<Name>) -> u32 {
        let extra = Extra {
            taints: device.taints.iter().flatten().map(Taint::from).collect(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
            binds_to_node: device.binds_to_node.unwrap_or(false),
            node_name: device.node_name.clone(),
            all_nodes: device.all_nodes.unwrap_or(false),
            node_selector: device.node_selector.as_ref().map(Into::into),
            has_consumptions: !bare_sets.is_empty(),
            bare_sets,
        };
        if extra == Extra::default() {
            return NO_EXTRA;
        }
        self.extras.intern(extra)
    }
}
