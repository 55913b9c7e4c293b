//! Copies an inventory without its garbage.

use super::{Capacity, Consumption, CounterSet, Device, Extra, Inventory, OWN, Shape, Slice, Value, Version};
use crate::names::Name;

/// Copies the values used by slices, each distinct value once.
struct Copier<'o> {
    old: &'o Inventory,
    new: Inventory,
    attributes: Copied,
    capacities: Copied,
    consumptions: Copied,
    shapes: Copied,
    extras: Copied,
    /// By version: its text.
    versions: Vec<Option<Name>>,
}

/// By index in the old inventory: the index in the new one.
struct Copied(Vec<Option<u32>>);

impl Copied {
    fn new(count: usize) -> Self {
        Copied(vec![None; count])
    }
}

impl Inventory {
    /// The same slices in the same order, with new indices.
    pub(super) fn compacted(&self) -> Inventory {
        let mut versions = vec![None; self.values.versions.len()];
        for (text, index) in &self.values.version_index {
            versions[*index as usize] = Some(*text);
        }
        let mut copier = Copier {
            old: self,
            new: Inventory::default(),
            attributes: Copied::new(self.values.attributes.items.len()),
            capacities: Copied::new(self.values.capacities.len()),
            consumptions: Copied::new(self.values.consumptions.items.len()),
            shapes: Copied::new(self.values.shapes.items.len()),
            extras: Copied::new(self.extras.items.len()),
            versions,
        };
        for slice in self.slices.iter().filter(|slice| slice.is_there) {
            copier.slice(slice);
        }
        copier.new.shrink_to_fit();
        copier.new.taint_rules = self.taint_rules.clone();
        copier.new
    }
}

impl Copier<'_> {
    fn name(&mut self, name: Name) -> Name {
        self.new.names.intern(self.old.text(name))
    }

    fn slice(&mut self, slice: &Slice) {
        let place = self.new.slices.len() as u32;
        let first_device = self.new.devices.len() as u32;
        for index in slice.first_device..slice.end_device {
            self.device(index, place);
        }
        let pool = &self.old.pools[slice.pool as usize];
        let (driver, name) = (self.name(pool.driver), self.name(pool.name));
        let counter_sets = slice
            .counter_sets
            .iter()
            .map(|set| CounterSet {
                name: self.name(set.name),
                counters: set.counters.iter().map(|(name, value)| (self.name(*name), *value)).collect(),
            })
            .collect();
        let copy = Slice {
            is_there: true,
            name: slice.name.clone(),
            pool: self.new.pool(driver, name),
            generation: slice.generation,
            resource_slice_count: slice.resource_slice_count,
            node_name: slice.node_name.map(|name| self.name(name)),
            node_selector: slice.node_selector.clone(),
            all_nodes: slice.all_nodes,
            per_device: slice.per_device,
            counter_sets,
            first_device,
            end_device: self.new.devices.len() as u32,
            has_compatibility_groups: slice.has_compatibility_groups,
            has_binding_conditions: slice.has_binding_conditions,
            kind: super::SliceKind::default(),
        };
        let _ = self.new.put_in(place, copy);
    }

    fn device(&mut self, index: u32, slice: u32) {
        let old = self.old;
        let device = super::DeviceRef { inventory: old, index };
        let record = old.devices[index as usize];
        let cells = self.new.cells.len() as u32;
        for cell in &device.stored_cells()[..device.shape().attributes.len()] {
            let cell = if *cell == OWN { OWN } else { self.attribute(*cell) };
            self.new.cells.push(cell);
        }
        let identity = if record.identity == OWN { OWN } else { self.attribute(record.identity) };
        for cell in device.capacity_cells() {
            let cell = self.capacity(*cell);
            self.new.cells.push(cell);
        }
        for cell in device.consumption_cells() {
            let cell = self.consumption(*cell);
            self.new.cells.push(cell);
        }
        if let Some(defect) = old.defects.get(&index) {
            self.new.defects.insert(self.new.devices.len() as u32, defect.clone());
        }
        let copy = Device {
            name: self.name(record.name),
            shape: self.shape(record.shape),
            cells,
            slice,
            extra: device.extra().map_or(super::NO_EXTRA, |extra| self.extra(record.extra, extra)),
            consumptions: record.consumptions,
            identity,
        };
        self.new.devices.push(copy);
    }

    fn attribute(&mut self, cell: u32) -> u32 {
        if let Some(known) = self.attributes.0[cell as usize] {
            return known;
        }
        let value = match self.old.values.attributes.items[cell as usize] {
            Value::Text(text) => Value::Text(self.name(text)),
            Value::Version(version) => Value::Version(self.version(version)),
            other => other,
        };
        let copy = self.new.values.attributes.intern(value);
        self.attributes.0[cell as usize] = Some(copy);
        copy
    }

    fn version(&mut self, version: u32) -> u32 {
        let index = self.new.values.versions.len() as u32;
        let parsed = self.old.values.versions[version as usize].parsed.clone();
        if let Some(text) = self.versions[version as usize] {
            let text = self.name(text);
            self.new.values.version_index.insert(text, index);
        }
        self.new.values.versions.push(Version { parsed });
        index
    }

    fn capacity(&mut self, cell: u32) -> u32 {
        if let Some(known) = self.capacities.0[cell as usize] {
            return known;
        }
        let Capacity { name, amount, policy } = &self.old.values.capacities[cell as usize];
        let name = self.name(*name);
        let copy = Capacity { name, amount: amount.clone(), policy: policy.clone() };
        let index = self.new.values.capacities.len() as u32;
        self.new.values.capacities.push(copy);
        self.new.values.capacity_index.insert((name, amount.clone(), policy.clone()), index);
        self.capacities.0[cell as usize] = Some(index);
        index
    }

    fn consumption(&mut self, cell: u32) -> u32 {
        if let Some(known) = self.consumptions.0[cell as usize] {
            return known;
        }
        let Consumption { set, counter, amount } = self.old.values.consumptions.items[cell as usize];
        let taken = Consumption { set: self.name(set), counter: self.name(counter), amount };
        let copy = self.new.values.consumptions.intern(taken);
        self.consumptions.0[cell as usize] = Some(copy);
        copy
    }

    fn shape(&mut self, shape: u32) -> u32 {
        if let Some(known) = self.shapes.0[shape as usize] {
            return known;
        }
        let old = &self.old.values.shapes.items[shape as usize];
        let shape_copy = Shape {
            driver: self.name(old.driver),
            allow_multiple_allocations: old.allow_multiple_allocations,
            attributes: old.attributes.iter().map(|name| self.name(*name)).collect(),
            capacities: old.capacities.iter().map(|name| self.name(*name)).collect(),
        };
        let copy = self.new.values.shapes.intern(shape_copy);
        self.shapes.0[shape as usize] = Some(copy);
        copy
    }

    fn extra(&mut self, index: u32, extra: &Extra) -> u32 {
        if let Some(known) = self.extras.0[index as usize] {
            return known;
        }
        let mut copied = extra.clone();
        copied.bare_sets = extra.bare_sets.iter().map(|set| self.name(*set)).collect();
        let copy = self.new.extras.intern(copied);
        self.extras.0[index as usize] = Some(copy);
        copy
    }
}
