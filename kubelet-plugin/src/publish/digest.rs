//! What a slice holds in 32 bytes, so that what is wanted and what an API server has are compared without either being
//! kept.

use std::fmt;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tessera_api::Quantity;

use super::compare::{Kind, is_empty};

/// A digest of a slice's `spec` without its pool's generation and count.
///
/// Two are equal where [`super::compare::differences`] finds none: what an API server rewrites, leaves out or fills in
/// makes no difference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpecDigest([u8; 32]);

/// Digests a list of devices or counter sets, one after the other. The empty list is as none.
#[derive(Clone, Debug, Default)]
pub struct ListDigest(Sha256);

impl SpecDigest {
    /// The digest of `spec` with what it holds.
    #[must_use]
    pub fn of(spec: &ResourceSliceSpec) -> Self {
        let (mut devices, mut shared_counters) = (ListDigest::default(), ListDigest::default());
        spec.devices.iter().flatten().for_each(|device| devices.add_device(device));
        spec.shared_counters.iter().flatten().for_each(|set| shared_counters.add_counter_set(set));
        Self::of_parts(spec, devices, shared_counters)
    }

    /// The digest of a spec of which what it holds was digested already; what `spec` itself holds does not count.
    #[must_use]
    pub fn of_parts(spec: &ResourceSliceSpec, devices: ListDigest, shared_counters: ListDigest) -> Self {
        let mut rest = ResourceSliceSpec {
            all_nodes: spec.all_nodes,
            devices: None,
            driver: spec.driver.clone(),
            node_name: spec.node_name.clone(),
            node_selector: spec.node_selector.clone(),
            partition_type_attribute: spec.partition_type_attribute.clone(),
            per_device_node_selection: spec.per_device_node_selection,
            pool: spec.pool.clone(),
            shared_counters: None,
            skip_node_operations: spec.skip_node_operations.clone(),
        };
        rest.pool.generation = 0;
        rest.pool.resource_slice_count = 0;
        let mut hasher = Sha256::new();
        add(&mut hasher, Kind::Other, &json(&rest));
        hasher.update(devices.0.finalize());
        hasher.update(shared_counters.0.finalize());
        Self(hasher.finalize().into())
    }
}

impl ListDigest {
    /// Adds the next device.
    pub fn add_device(&mut self, device: &Device) {
        add(&mut self.0, Kind::Other, &json(device));
    }

    /// Adds the next counter set.
    pub fn add_counter_set(&mut self, set: &CounterSet) {
        add(&mut self.0, Kind::Other, &json(set));
    }
}

impl fmt::Debug for SpecDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn json(value: &impl Serialize) -> Value {
    // Plain data with string keys: it always serialises.
    serde_json::to_value(value).unwrap_or_default()
}

/// Adds a value so that no two that differ are spelled the same: each begins with what it is, texts with their length,
/// and lists and objects end.
fn add(hasher: &mut Sha256, kind: Kind, value: &Value) {
    match value {
        empty if is_empty(empty) => hasher.update(b"0"),
        Value::Object(fields) => {
            hasher.update(b"{");
            // By name, whatever order the map has.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in fields {
                let set_by_server = kind == Kind::Taints && name == "timeAdded";
                if !is_empty(value) && !set_by_server {
                    text(hasher, name);
                    add(hasher, kind.of_field(name), value);
                }
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| add(hasher, kind, item));
            hasher.update(b"]");
        }
        Value::String(value) => match value.parse::<Quantity>() {
            Ok(quantity) if kind == Kind::Quantities => {
                hasher.update(b"q");
                hasher.update(quantity.nanos().to_be_bytes());
            }
            _ => text(hasher, value),
        },
        Value::Bool(_) | Value::Number(_) | Value::Null => {
            hasher.update(b"v");
            text(hasher, &value.to_string());
        }
    }
}

fn text(hasher: &mut Sha256, text: &str) {
    hasher.update(b"s");
    hasher.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::publish::compare::differences;

    fn spec(devices: &Value, sets: &Value, generation: i64) -> ResourceSliceSpec {
        serde_json::from_value(json!({
            "driver": "gpu.tessera.dev", "nodeName": "n", "devices": devices, "sharedCounters": sets,
            "pool": {"name": "gpu.tessera.dev/n", "generation": generation, "resourceSliceCount": generation},
        }))
        .unwrap()
    }

    /// Devices that differ in what matters, and in what does not.
    fn any_device() -> impl Strategy<Value = Value> {
        let quantity = prop::sample::select(vec!["1Gi", "1024Mi", "2Gi", "1", "1000m", "", "x"]);
        let value = prop::sample::select(vec!["a", "b", "1Gi", "1024Mi"]);
        let effect = prop::sample::select(vec!["NoSchedule", "None"]);
        let time =
            prop::option::of(prop::sample::select(vec!["2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"]));
        (any::<[bool; 6]>(), quantity, value, effect, time, 0..3_i64).prop_map(
            |(has, quantity, value, effect, time, number)| {
                let mut device = json!({"name": value});
                if has[0] {
                    device["attributes"] = json!({"text": {"string": value}, "number": {"int": number}});
                }
                if has[1] {
                    device["capacity"] = json!({"memory": {"value": quantity, "requestPolicy": {"default": quantity,
                        "validValues": [quantity]}}});
                }
                if has[2] {
                    device["consumesCounters"] = json!([{"counterSet": value, "counters": {"m": {"value": quantity}}}]);
                }
                if has[3] {
                    device["taints"] = json!([{"key": "k", "effect": effect, "timeAdded": time}]);
                }
                if has[4] {
                    device["attributes"] = json!({});
                }
                if has[5] {
                    device["allowMultipleAllocations"] = json!(number > 0);
                }
                device
            },
        )
    }

    fn any_spec() -> impl Strategy<Value = ResourceSliceSpec> {
        let sets = prop::sample::select(vec![
            Value::Null,
            json!([]),
            json!([{"name": "a", "counters": {"m": {"value": "1Gi"}}}]),
            json!([{"name": "a", "counters": {"m": {"value": "1024Mi"}}}]),
        ]);
        (prop::collection::vec(any_device(), 0..3), sets, 0..3_i64)
            .prop_map(|(devices, sets, generation)| spec(&devices.into(), &sets, generation))
    }

    /// Of a taint's time, `differences` sees one that was wanted and is not there; nobody here wants any.
    fn without_times(mut spec: ResourceSliceSpec) -> ResourceSliceSpec {
        let taints = spec.devices.iter_mut().flatten().flat_map(|device| device.taints.iter_mut().flatten());
        taints.for_each(|taint| taint.time_added = None);
        spec
    }

    fn same(wanted: &ResourceSliceSpec, held: &ResourceSliceSpec) -> bool {
        let mut held = held.clone();
        held.pool = wanted.pool.clone();
        differences(wanted, &held).is_empty()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn digests_are_equal_where_no_difference_is_found(wanted in any_spec(), held in any_spec(), mine in any::<bool>()) {
            let wanted = without_times(wanted);
            // Two that have nothing to do with each other are rarely the same.
            let held = if mine { ResourceSliceSpec { devices: wanted.devices.clone(), ..held } } else { held };
            prop_assert_eq!(SpecDigest::of(&wanted) == SpecDigest::of(&held), same(&wanted, &held));
        }
    }

    #[test]
    fn whose_slice_it_is_counts_and_its_generation_does_not() {
        let devices = json!([{"name": "a"}]);
        let digest = |change: fn(&mut ResourceSliceSpec)| {
            let mut spec = spec(&devices, &Value::Null, 1);
            change(&mut spec);
            SpecDigest::of(&spec)
        };
        let plain = digest(|_| {});
        assert_eq!(plain, digest(|spec| spec.pool.generation = 7));
        assert_eq!(plain, digest(|spec| spec.pool.resource_slice_count = 7));
        assert_ne!(plain, digest(|spec| spec.pool.name.push('x')));
        assert_ne!(plain, digest(|spec| spec.driver.push('x')));
        assert_ne!(plain, digest(|spec| spec.node_name = None));
        assert_ne!(plain, digest(|spec| spec.all_nodes = Some(true)));
        assert_ne!(plain, digest(|spec| spec.devices.as_mut().unwrap().push(Device::default())));
        assert_ne!(plain, digest(|spec| spec.partition_type_attribute = Some("x".to_owned())));
    }
}
