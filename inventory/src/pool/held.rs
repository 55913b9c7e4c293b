use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};

/// Devices that allocated or prepared claims hold, with the counter sets they draw on, as they were last published.
///
/// They stay published whatever happens to their card: taking one back would free its counters under running hardware.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    devices: BTreeMap<String, Device>,
    counter_sets: BTreeMap<String, CounterSet>,
}

impl Held {
    /// Picks the devices for which `is_held` says so out of published slices of this driver's pool on this node.
    #[must_use]
    pub fn from_slices<'a>(
        slices: impl IntoIterator<Item = &'a ResourceSliceSpec>,
        is_held: impl Fn(&str) -> bool,
    ) -> Self {
        let mut held = Self::default();
        let mut published_sets = BTreeMap::new();
        for slice in slices {
            for set in slice.shared_counters.iter().flatten() {
                published_sets.entry(set.name.as_str()).or_insert(set);
            }
            for device in slice.devices.iter().flatten().filter(|device| is_held(&device.name)) {
                held.devices.entry(device.name.clone()).or_insert_with(|| device.clone());
            }
        }
        for consumption in held.devices.values().flat_map(|device| device.consumes_counters.iter().flatten())
        {
            if let Some(set) = published_sets.get(consumption.counter_set.as_str()) {
                held.counter_sets.entry(set.name.clone()).or_insert_with(|| (*set).clone());
            }
        }
        held
    }

    /// The held devices, by name.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// The counter sets they draw on, by name.
    pub fn counter_sets(&self) -> impl Iterator<Item = &CounterSet> {
        self.counter_sets.values()
    }
}
