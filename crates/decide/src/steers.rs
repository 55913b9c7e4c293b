//! Pods on their way to the node that was proposed for them.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;
use tessera_placement::Time;

/// A pod on its way.
#[derive(Debug, Clone)]
pub(crate) struct Steer {
    pub node: String,
    /// Claims without devices that other pods may use, too: they must follow it.
    pub shared: Vec<Key>,
    /// Its claims were seen with devices, or it needs none there.
    pub is_allocated: bool,
    /// For one whose devices this controller allocates.
    pub managed: Option<ManagedSteer>,
}

/// A pod on its way with devices from this controller.
#[derive(Debug, Clone)]
pub(crate) struct ManagedSteer {
    /// What kube-scheduler said of it before.
    pub verdict_before: Option<String>,
    /// Where kube-scheduler says by then that it finds no node, it means this one.
    pub due: Time,
    /// Claims to which devices are being written for it.
    pub claims: Vec<Key>,
}

/// Pods on their way, by name.
#[derive(Debug, Default)]
pub(crate) struct Steers {
    pods: BTreeMap<Key, Steer>,
}

impl Steers {
    pub fn insert(&mut self, pod: Key, steer: Steer) {
        self.pods.insert(pod, steer);
    }

    pub fn get(&self, pod: &Key) -> Option<&Steer> {
        self.pods.get(pod)
    }

    pub fn get_mut(&mut self, pod: &Key) -> Option<&mut Steer> {
        self.pods.get_mut(pod)
    }

    pub fn remove(&mut self, pod: &Key) -> Option<Steer> {
        self.pods.remove(pod)
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }

    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Pods on their way to these nodes to which kube-scheduler has not given devices yet, each with its node.
    pub fn to_any(&self, nodes: &BTreeSet<String>) -> Vec<(Key, String)> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let open = self.pods.iter().filter(|(_, steer)| {
            steer.managed.is_none() && !steer.is_allocated && nodes.contains(&steer.node)
        });
        open.map(|(key, steer)| (key.clone(), steer.node.clone())).collect()
    }

    /// Pods with devices from this controller that are not bound at `now`, and should be.
    pub fn overdue(&self, now: Time) -> Vec<Key> {
        let due = self.pods.iter().filter(|(_, steer)| {
            steer.is_allocated && steer.managed.as_ref().is_some_and(|managed| managed.due <= now)
        });
        due.map(|(key, _)| key.clone()).collect()
    }

    /// When the next one is overdue.
    pub fn next_due(&self) -> Option<Time> {
        let open = self.pods.values().filter(|steer| steer.is_allocated);
        open.filter_map(|steer| steer.managed.as_ref()).map(|managed| managed.due).min()
    }

    /// The node to which another pod with one of these claims is on its way.
    pub fn node_of_claims(&self, claims: &[Key]) -> Option<&str> {
        let mut steers = self.pods.values();
        steers
            .find(|steer| steer.shared.iter().any(|shared| claims.contains(shared)))
            .map(|steer| steer.node.as_str())
    }
}
