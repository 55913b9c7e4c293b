//! The devices that slices publish, and what they draw on.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::Device;

use super::{View, slices};

/// A device: its pool and its name.
pub type DeviceId = (String, String);

/// The counters of a pool, by set and name.
pub(super) type Counters = BTreeMap<(String, String), i64>;

/// What the slices of a node publish.
#[derive(Default)]
pub(super) struct Published<'v> {
    pub devices: Vec<(&'v str, &'v Device)>,
    pub counters: Counters,
    /// Whether all slices of the pool are there: else nobody gives its devices out.
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

/// What the device draws on.
pub(super) fn consumed(device: &Device) -> impl Iterator<Item = ((String, String), i64)> {
    device.consumes_counters.iter().flatten().flat_map(|of_set| {
        let counters = of_set.counters.iter();
        counters.map(|(name, value)| ((of_set.counter_set.clone(), name.clone()), amount(&value.value.0)))
    })
}

/// Whether the controller gives the device out: kube-scheduler is kept from it by a taint.
pub(super) fn is_managed(device: &Device) -> bool {
    device.taints.iter().flatten().next().is_some()
}

/// Whether the controller gives out devices of the node.
pub fn has_managed_devices(view: &View, node: &str) -> bool {
    Published::of_node(view, node).devices.iter().any(|(_, device)| is_managed(device))
}

/// All devices that are published, each with its node.
pub fn published(view: &View) -> impl Iterator<Item = (&str, DeviceId)> {
    slices(view).flat_map(|slice| {
        let node = slice.spec.node_name.as_deref().unwrap_or_default();
        let devices = slice.spec.devices.iter().flatten();
        devices.map(move |device| (node, (slice.spec.pool.name.clone(), device.name.clone())))
    })
}
