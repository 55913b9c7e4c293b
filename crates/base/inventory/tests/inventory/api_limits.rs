//! The API server's validation of what a pool publishes, as `resource.k8s.io/v1` of Kubernetes 1.36 does it. The
//! numbers are written out here, so that a wrong constant in the code under test is noticed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceAttribute, DeviceCapacity, DeviceTaint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::{Quantity, limits};
use tessera_inventory::Pool;
use tessera_inventory::pool::Contents;

/// Everything that an API server or the scheduler would refuse in `pool`.
pub fn violations(pool: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |complaint: String| found.push(complaint);
    let names: Vec<&str> = pool.slices.iter().map(|slice| slice.name_suffix.as_str()).collect();
    if !names.windows(2).all(|two| two[0] < two[1]) {
        complain(format!("slices are not in strict order of their names: {names:?}"));
    }
    let all_sets: Vec<CounterSet> = pool.counter_sets().collect();
    let sets: BTreeMap<&str, &CounterSet> = all_sets.iter().map(|set| (set.name.as_str(), set)).collect();
    if sets.len() != all_sets.len() {
        complain("a counter set's name is not unique in the pool".to_owned());
    }
    let devices: BTreeSet<&str> = pool.device_names().map(|name| &**name).collect();
    if devices.len() != pool.device_names().count() {
        complain("a device's name is not unique in the pool".to_owned());
    }
    for slice in &pool.slices {
        if !limits::is_dns_label(&slice.name_suffix) {
            complain(format!("slice name {:?}", slice.name_suffix));
        }
        match &slice.contents {
            Contents::SharedCounters { .. } => {
                let sets = slice.contents.shared_counters();
                if !(1..=8).contains(&sets.len()) {
                    complain(format!("{} counter sets in a slice", sets.len()));
                }
                sets.iter().for_each(|set| check_counter_set(set, &mut complain));
            }
            Contents::Devices { .. } => {
                let devices = slice.contents.devices();
                let advanced =
                    |device: &Device| device.taints.is_some() || device.consumes_counters.is_some();
                let limit = if devices.iter().any(advanced) { 64 } else { 128 };
                if !(1..=limit).contains(&devices.len()) {
                    complain(format!("{} devices in a slice", devices.len()));
                }
                devices.iter().for_each(|device| check_device(device, &sets, &mut complain));
            }
        }
    }
    found
}

fn check_counter_set(set: &CounterSet, complain: &mut impl FnMut(String)) {
    if !limits::is_dns_label(&set.name) {
        complain(format!("counter set name {:?}", set.name));
    }
    if !(1..=32).contains(&set.counters.len()) {
        complain(format!("{} counters in set {}", set.counters.len(), set.name));
    }
    for (name, counter) in &set.counters {
        if !limits::is_dns_label(name) {
            complain(format!("counter name {name:?}"));
        }
        check_quantity(&counter.value.0, complain);
    }
}

fn check_device(device: &Device, sets: &BTreeMap<&str, &CounterSet>, complain: &mut impl FnMut(String)) {
    if !limits::is_dns_label(&device.name) {
        complain(format!("device name {:?}", device.name));
    }
    let attributes = device.attributes.iter().flatten();
    let capacities = device.capacity.iter().flatten();
    if attributes.clone().count() + capacities.clone().count() > 32 {
        complain(format!("{} has too many attributes and capacities", device.name));
    }
    for (name, attribute) in attributes {
        if !limits::is_qualified_name(name) {
            complain(format!("attribute name {name:?}"));
        }
        check_attribute(name, attribute, complain);
    }
    for (name, capacity) in capacities {
        if !limits::is_qualified_name(name) {
            complain(format!("capacity name {name:?}"));
        }
        check_quantity(&capacity.value.0, complain);
        if capacity.request_policy.is_some() && device.allow_multiple_allocations != Some(true) {
            complain(format!("{}: a request policy on an exclusive device", device.name));
        }
    }
    for (name, capacity) in device.capacity.iter().flatten() {
        check_request_policy(&format!("{}: {name}", device.name), capacity, complain);
    }
    let consumptions: Vec<_> = device.consumes_counters.iter().flatten().collect();
    let consumed: BTreeSet<&str> =
        consumptions.iter().map(|consumption| consumption.counter_set.as_str()).collect();
    if consumptions.len() > 2 || consumed.len() != consumptions.len() {
        complain(format!("{} consumes from {consumed:?}", device.name));
    }
    for consumption in consumptions {
        if !(1..=32).contains(&consumption.counters.len()) {
            complain(format!("{} consumes {} counters", device.name, consumption.counters.len()));
        }
        let set = sets.get(consumption.counter_set.as_str());
        for (name, counter) in &consumption.counters {
            let available = set.and_then(|set| set.counters.get(name));
            let value = |text: &str| text.parse::<Quantity>().unwrap();
            if available.is_none_or(|available| value(&available.value.0) < value(&counter.value.0)) {
                complain(format!(
                    "{} consumes {name}, which {} does not have",
                    device.name, consumption.counter_set
                ));
            }
        }
    }
    let taints: Vec<&DeviceTaint> = device.taints.iter().flatten().collect();
    if taints.len() > 16 {
        complain(format!("{} has {} taints", device.name, taints.len()));
    }
    taints.iter().for_each(|taint| check_taint(taint, complain));
    let elsewhere =
        device.node_name.is_some() || device.node_selector.is_some() || device.all_nodes.is_some();
    if elsewhere || device.binds_to_node.is_some() || device.binding_conditions.is_some() {
        complain(format!("{} says where it is, which the slice does", device.name));
    }
}

/// `validateRequestPolicy` of the API server.
fn check_request_policy(at: &str, capacity: &DeviceCapacity, complain: &mut impl FnMut(String)) {
    let Some(policy) = &capacity.request_policy else { return };
    let number = |text: &QuantityText| text.0.parse::<Quantity>().unwrap().as_integer().unwrap();
    let value = number(&capacity.value);
    let (Some(default), Some(range), None) = (&policy.default, &policy.valid_range, &policy.valid_values)
    else {
        complain(format!("{at}: not a range with a default: {policy:?}"));
        return;
    };
    let texts = [Some(default), Some(&range.min), range.max.as_ref(), range.step.as_ref()];
    texts.into_iter().flatten().for_each(|text| check_quantity(&text.0, complain));
    let (default, min) = (number(default), number(&range.min));
    let max = range.max.as_ref().map(number);
    let step = range.step.as_ref().map(number);
    let fits = (min..=value).contains(&default)
        && max.is_none_or(|max| {
            max <= value && default <= max && step.is_none_or(|step| (max - min) % step == 0)
        })
        && step.is_none_or(|step| step > 0 && min + step <= value && (default - min) % step == 0);
    if !fits {
        complain(format!("{at}: {policy:?} of {value}"));
    }
}

fn check_attribute(name: &str, attribute: &DeviceAttribute, complain: &mut impl FnMut(String)) {
    let DeviceAttribute { bool, bools, int, ints, string, strings, version, versions } = attribute;
    let scalars = [bool.is_some(), int.is_some(), string.is_some(), version.is_some()];
    // Lists are alpha in 1.36: a server without the gate drops them.
    let lists = bools.is_some() || ints.is_some() || strings.is_some() || versions.is_some();
    if scalars.into_iter().filter(|&set| set).count() != 1 || lists {
        complain(format!("attribute {name} is not exactly one scalar: {attribute:?}"));
    }
    if string.as_ref().is_some_and(|string| string.len() > 64) {
        complain(format!("attribute {name} is too long"));
    }
    if version.as_ref().is_some_and(|version| version.len() > 64 || !limits::is_version_value(version)) {
        complain(format!("attribute {name} is no semantic version: {version:?}"));
    }
}

fn check_taint(taint: &DeviceTaint, complain: &mut impl FnMut(String)) {
    let (prefix, name) = taint.key.split_once('/').unwrap_or(("a", &taint.key));
    if !limits::is_dns_subdomain(prefix) || name.is_empty() || !limits::is_label_value(name) {
        complain(format!("taint key {:?}", taint.key));
    }
    if taint.value.as_ref().is_some_and(|value| !limits::is_label_value(value)) {
        complain(format!("taint value {:?}", taint.value));
    }
    if !["None", "NoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
        complain(format!("taint effect {:?}", taint.effect));
    }
}

/// Quantities must be in canonical form, else the server's answer differs from what was written.
fn check_quantity(text: &str, complain: &mut impl FnMut(String)) {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.to_string() == text => {}
        other => complain(format!("quantity {text:?}: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use tessera_inventory::pool::Slice;

    use super::*;

    fn pool(slices: Vec<(&str, Contents)>) -> Pool {
        let slices =
            slices.into_iter().map(|(name, contents)| Slice { name_suffix: name.to_owned(), contents });
        Pool { slices: slices.collect(), ..Pool::default() }
    }

    fn device(name: String) -> Device {
        Device { name, ..Device::default() }
    }

    /// A check that cannot fail proves nothing.
    #[test]
    fn violations_are_found() {
        let tainted = |number: usize| Device {
            taints: Some(vec![DeviceTaint {
                key: "gpu.tessera.dev/unhealthy".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..DeviceTaint::default()
            }]),
            ..device(format!("gpu-{number}"))
        };
        let of = |devices: &[Device]| pool(vec![("a", Contents::of_devices(devices))]);
        let devices = |count: usize| Contents::of_devices(&(0..count).map(tainted).collect::<Vec<_>>());
        assert_eq!(violations(&pool(vec![("a", devices(64))])), [""; 0]);
        assert_eq!(violations(&pool(vec![("a", devices(65))])).len(), 1);
        assert_eq!(violations(&pool(vec![("a", devices(1)), ("b", devices(1))])).len(), 1);
        let other = Contents::of_devices(&[device("x".into())]);
        assert_eq!(violations(&pool(vec![("b", devices(1)), ("a", other)])).len(), 1);
        assert_eq!(violations(&of(&[])).len(), 1);

        let mut long = device("gpu-0".to_owned());
        let string = Some("x".repeat(65));
        long.attributes = Some(BTreeMap::from([(
            "a-b".to_owned(),
            DeviceAttribute { string, ..DeviceAttribute::default() },
        )]));
        assert_eq!(violations(&of(&[long])).len(), 2);

        let set = |number: usize| CounterSet { name: format!("set-{number}"), counters: BTreeMap::new() };
        let nine = Contents::of_shared_counters(&(0..9).map(set).collect::<Vec<_>>());
        assert_eq!(violations(&pool(vec![("a", nine)])).len(), 1 + 9);
    }
}
