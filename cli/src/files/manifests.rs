//! What makes pods, of files.

use std::collections::BTreeMap;

use tessera_cluster::Key;
use tessera_simulate::fleet::Manifest;

/// Objects of one kind, each with its place among all.
type Made = BTreeMap<Key, (usize, Manifest)>;

/// What makes pods, and their priorities.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Pods on no node.
    pub pods: Made,
    /// Deployments.
    pub deployments: Made,
    /// ReplicaSets.
    pub replica_sets: Made,
    /// StatefulSets.
    pub stateful_sets: Made,
    /// Jobs.
    pub jobs: Made,
    /// Values of PriorityClasses.
    pub priority_classes: BTreeMap<Key, i32>,
}

impl Manifests {
    /// How many make pods.
    pub fn count(&self) -> usize {
        let Self { pods, deployments, replica_sets, stateful_sets, jobs, priority_classes: _ } = self;
        [pods, deployments, replica_sets, stateful_sets, jobs].map(BTreeMap::len).iter().sum()
    }

    /// What makes pods, in the order of the files, and the priorities by name.
    pub fn into_parts(self) -> (Vec<Manifest>, BTreeMap<String, i32>) {
        let Self { pods, deployments, replica_sets, stateful_sets, jobs, priority_classes } = self;
        let all = [pods, deployments, replica_sets, stateful_sets, jobs];
        let mut all: Vec<(usize, Manifest)> = all.into_iter().flat_map(BTreeMap::into_values).collect();
        all.sort_by_key(|(order, _)| *order);
        let priorities = priority_classes.into_iter().map(|((_, name), value)| (name, value));
        (all.into_iter().map(|(_, manifest)| manifest).collect(), priorities.collect())
    }
}
