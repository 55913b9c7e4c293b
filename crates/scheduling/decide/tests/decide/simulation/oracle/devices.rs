//! Published devices, and the counters they consume.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::Device;

use super::{View, slices};

/// Pool and name of a device.
pub type DeviceId = (String, String);

/// Counters of a pool, by set and name.
pub(super) type Counters = BTreeMap<(String, String), i64>;

/// Devices and counters in the slices of a node.
#[derive(Default)]
pub(super) struct Published<'v> {
    pub devices: Vec<(&'v str, &'v Device)>,
    pub counters: Counters,
    /// Whether all slices of the pool are present. Otherwise none of its devices are allocated.
    pub is_complete: bool,
}

impl<'v> Published<'v> {
    pub fn of_node(view: &'v View, node: &str) -> Self {
        let mut published = Published::default();
        let mut missing = None;
        for slice in slices(view).filter(|slice| slice.spec.node_name.as_deref() == Some(node)) {
            *missing.get_or_insert(slice.spec.pool.resource_slice_count) -= 1;
            for set in slice.spec.shared_counters.iter().flatten() {
                let values = set.counters.iter();
                let all =
                    values.map(|(name, value)| ((set.name.clone(), name.clone()), amount(&value.value.0)));
                published.counters.extend(all);
            }
            let devices = slice.spec.devices.iter().flatten();
            published.devices.extend(devices.map(|device| (slice.spec.pool.name.as_str(), device)));
        }
        published.is_complete = missing == Some(0);
        published
    }
}

fn amount(text: &str) -> i64 {
    text.parse().expect("counters here are small numbers")
}

/// Counters consumed by the device.
pub(super) fn consumed(device: &Device) -> impl Iterator<Item = ((String, String), i64)> {
    device.consumes_counters.iter().flatten().flat_map(|of_set| {
        let counters = of_set.counters.iter();
        counters.map(|(name, value)| ((of_set.counter_set.clone(), name.clone()), amount(&value.value.0)))
    })
}

/// Whether the controller allocates the device: a taint keeps kube-scheduler away.
pub(super) fn is_managed(device: &Device) -> bool {
    device.taints.iter().flatten().next().is_some()
}

/// Whether the controller allocates devices of the node.
pub fn has_managed_devices(view: &View, node: &str) -> bool {
    Published::of_node(view, node).devices.iter().any(|(_, device)| is_managed(device))
}

/// All published devices, each with its node.
pub fn published(view: &View) -> impl Iterator<Item = (&str, DeviceId)> {
    slices(view).flat_map(|slice| {
        let node = slice.spec.node_name.as_deref().unwrap_or_default();
        let devices = slice.spec.devices.iter().flatten();
        devices.map(move |device| (node, (slice.spec.pool.name.clone(), device.name.clone())))
    })
}
