//! Objects creating pods, from files.

use std::collections::BTreeMap;

use tessera_cluster::Key;
use tessera_simulate::fleet::Manifest;

/// Objects of one kind, each with its position among all, and its manifests.
type Made = BTreeMap<Key, (usize, Vec<Manifest>)>;

/// Objects creating pods, and their priorities.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Objects by kind; Pods are the ones on no node.
    of_kind: BTreeMap<&'static str, Made>,
    /// Number of all objects.
    count: usize,
    /// Values of PriorityClasses.
    pub priority_classes: BTreeMap<Key, i32>,
}

impl Manifests {
    /// Objects of a kind, and the next object's position among all.
    pub fn of_kind(&mut self, kind: &'static str) -> (&mut Made, usize) {
        self.count += 1;
        (self.of_kind.entry(kind).or_default(), self.count)
    }

    /// Objects creating pods, in the order of the files, and the priorities by name.
    pub fn into_parts(self) -> (Vec<Manifest>, BTreeMap<String, i32>) {
        let Self { of_kind, priority_classes, .. } = self;
        let mut all: Vec<(usize, Vec<Manifest>)> =
            of_kind.into_values().flat_map(BTreeMap::into_values).collect();
        all.sort_by_key(|(order, _)| *order);
        let priorities = priority_classes.into_iter().map(|(key, value)| (key.name, value));
        (all.into_iter().flat_map(|(_, made)| made).collect(), priorities.collect())
    }
}
