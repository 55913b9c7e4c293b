//! Values shared by many devices, each stored once.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::amount::{Amount, Nanos};
use crate::names::Name;

/// An attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Int(i64),
    Bool(bool),
    Text(Name),
    /// Index of a version.
    Version(u32),
    /// None of the kinds that Kubernetes knows by default.
    Unknown,
}

/// A version's text, and its meaning if valid.
#[derive(Debug)]
pub(crate) struct Version {
    pub parsed: Result<tessera_cel::Version, String>,
}

/// Names common to devices of one shape, without values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub driver: Name,
    pub allow_multiple_allocations: bool,
    pub attributes: Box<[Name]>,
    pub capacities: Box<[Name]>,
}

/// A capacity with its policy.
#[derive(Debug)]
pub(crate) struct Capacity {
    pub name: Name,
    pub amount: Amount,
    pub policy: Option<Policy>,
}

/// A capacity's requestPolicy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Policy {
    pub default: Option<Amount>,
    pub range: Option<Range>,
    pub values: Vec<Amount>,
    /// `validValues` is present, even if empty.
    pub has_values: bool,
}

/// A policy's validRange.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub min: Amount,
    pub max: Option<Amount>,
    pub step: Option<Amount>,
}

/// The amount of one counter taken by a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Consumption {
    pub set: Name,
    pub counter: Name,
    pub amount: Nanos,
}

/// Interned values.
#[derive(Debug)]
pub(crate) struct Distinct<T> {
    pub items: Vec<T>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Distinct { items: Vec::new(), table: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: Hash + Eq> Distinct<T> {
    pub fn intern(&mut self, item: T) -> u32 {
        let hash = self.hasher.hash_one(&item);
        let (items, hasher) = (&self.items, &self.hasher);
        if let Some(index) = self.table.find(hash, |index| items[*index as usize] == item) {
            return *index;
        }
        let index = items.len() as u32;
        self.table.insert_unique(hash, index, |index| hasher.hash_one(&items[*index as usize]));
        self.items.push(item);
        index
    }

    pub fn find(&self, item: &T) -> Option<u32> {
        let hash = self.hasher.hash_one(item);
        self.table.find(hash, |index| self.items[*index as usize] == *item).copied()
    }

    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.table.capacity() * 5
    }
}

/// All shared values of an inventory.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub attributes: Distinct<Value>,
    pub shapes: Distinct<Shape>,
    pub consumptions: Distinct<Consumption>,
    pub capacities: Vec<Capacity>,
    pub capacity_index: HashMap<(Name, Amount, Option<Policy>), u32>,
    pub versions: Vec<Version>,
    pub version_index: HashMap<Name, u32>,
}

impl Values {
    pub fn bytes(&self) -> usize {
        self.attributes.bytes()
            + self.shapes.bytes()
            + self.shapes.items.iter().map(|s| (s.attributes.len() + s.capacities.len()) * 4).sum::<usize>()
            + self.consumptions.bytes()
            + self.capacities.capacity() * (2 * size_of::<Capacity>() + 64)
            + self.versions.capacity() * (size_of::<Version>() + 16)
    }
}
