//! Devices and CPU in use.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};

use super::devices::{Counters, Published, consumed};
use super::{DeviceId, View, claims, devices_of, pods};
use crate::simulation::api_server::{has_ended, node_name};

/// Devices and CPU in use.
#[derive(Debug, Clone, Default)]
pub struct Holdings {
    devices: BTreeSet<DeviceId>,
    /// CPU in use by node, in thousandths of a core.
    cpu: BTreeMap<String, u64>,
}

impl Holdings {
    /// Devices of claims, and CPU used by bound pods on their nodes.
    pub fn of(view: &View) -> Self {
        let mut holdings = Holdings::default();
        holdings.add_devices(claims(view).flat_map(devices_of));
        for pod in pods(view).filter(|pod| !has_ended(pod)) {
            if let Some(node) = node_name(pod) {
                holdings.add_pod(node, pod);
            }
        }
        holdings
    }

    pub fn add_devices(&mut self, devices: impl IntoIterator<Item = DeviceId>) {
        self.devices.extend(devices);
    }

    pub fn remove_devices(&mut self, devices: &[DeviceId]) {
        self.devices.retain(|device| !devices.contains(device));
    }

    /// Devices in use here, and not in the others.
    pub fn beyond(&self, others: &Holdings) -> Vec<DeviceId> {
        self.devices.difference(&others.devices).cloned().collect()
    }

    pub fn add_pod(&mut self, node: &str, pod: &Pod) {
        *self.cpu.entry(node.to_owned()).or_default() += cpu_of(pod);
    }

    pub fn contains(&self, device: &DeviceId) -> bool {
        self.devices.contains(device)
    }

    /// Whether the node has CPU left for the pod. Its limit on the number of pods is never reached.
    pub(super) fn has_room(&self, node: &Node, pod: &Pod) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let all = allocatable.and_then(|all| all.get("cpu")).map_or(0, |cpu| milli(&cpu.0));
        node_name(pod) == Some(name) || self.cpu.get(name).copied().unwrap_or(0) + cpu_of(pod) <= all
    }

    /// Counters left after subtracting held devices.
    pub(super) fn left(&self, published: &Published<'_>) -> Counters {
        let mut left = published.counters.clone();
        for (pool, device) in &published.devices {
            if self.contains(&((*pool).to_owned(), device.name.clone())) {
                for (counter, amount) in consumed(device) {
                    *left.entry(counter).or_default() -= amount;
                }
            }
        }
        left
    }
}

fn cpu_of(pod: &Pod) -> u64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    requests.filter_map(|requests| requests.get("cpu")).map(|cpu| milli(&cpu.0)).sum()
}

fn milli(text: &str) -> u64 {
    let (number, factor) = text.strip_suffix('m').map_or((text, 1_000), |number| (number, 1));
    number.parse::<u64>().expect("CPU here is whole or in thousandths") * factor
}
