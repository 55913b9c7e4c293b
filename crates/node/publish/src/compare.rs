//! Compares a slice as sent to an API server with the slice as stored.
//!
//! The server rewrites quantities into their canonical form, leaves out empty lists and maps, fills in the time of a
//! taint, and drops fields whose feature gate is off. Only dropped fields count as a difference.

use k8s_openapi::api::resource::v1::ResourceSliceSpec;
use serde_json::Value;
use tessera_api::Quantity;

/// One field whose stored value is not the sent one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A sent field is missing, such as `spec.devices[3].consumesCounters`.
    Missing(String),
    /// A field holds another value.
    Changed(String),
    /// A field was not sent.
    Added(String),
}

impl Difference {
    /// The path of the field, as Kubernetes writes paths.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Missing(path) | Self::Changed(path) | Self::Added(path) => path,
        }
    }
}

/// All differences between the `desired` spec of a slice and the one `held` by the server, pool generation and count
/// included.
#[must_use]
pub fn differences(desired: &ResourceSliceSpec, held: &ResourceSliceSpec) -> Vec<Difference> {
    let mut found = Vec::new();
    walk("spec", Kind::Other, &json(desired), &json(held), &mut found);
    found
}

fn json(spec: &ResourceSliceSpec) -> Value {
    // A spec is plain data with string keys: it always serialises. `Null` would differ from everything.
    serde_json::to_value(spec).unwrap_or_default()
}

/// How the strings below a field compare.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// As text.
    Other,
    /// As quantities: `1024Mi` is `1Gi`.
    Quantities,
    /// A list of taints, whose times the server fills in.
    Taints,
}

impl Kind {
    fn of_field(self, name: &str) -> Self {
        match name {
            "capacity" | "counters" => Self::Quantities,
            "attributes" => Self::Other,
            "taints" => Self::Taints,
            _ => self,
        }
    }
}

fn walk(path: &str, kind: Kind, desired: &Value, held: &Value, found: &mut Vec<Difference>) {
    match (desired, held) {
        (Value::Object(desired), Value::Object(held)) => {
            for (name, value) in desired {
                let kind = kind.of_field(name);
                let path = format!("{path}.{name}");
                match held.get(name) {
                    Some(other) => walk(&path, kind, value, other, found),
                    None if is_empty(value) => {}
                    None => found.push(Difference::Missing(path)),
                }
            }
            for (name, value) in held {
                let set_by_server = kind == Kind::Taints && name == "timeAdded";
                if !desired.contains_key(name) && !is_empty(value) && !set_by_server {
                    found.push(Difference::Added(format!("{path}.{name}")));
                }
            }
        }
        (Value::Array(desired), Value::Array(held)) => {
            for (index, value) in desired.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match held.get(index) {
                    Some(other) => walk(&path, kind, value, other, found),
                    None => found.push(Difference::Missing(path)),
                }
            }
            for index in desired.len()..held.len() {
                found.push(Difference::Added(format!("{path}[{index}]")));
            }
        }
        (Value::String(desired), Value::String(held)) => {
            let same = desired == held || kind == Kind::Quantities && same_quantity(desired, held);
            if !same {
                found.push(Difference::Changed(path.to_owned()));
            }
        }
        (desired, held) => {
            if desired != held && !(is_empty(desired) && is_empty(held)) {
                found.push(Difference::Changed(path.to_owned()));
            }
        }
    }
}

fn same_quantity(desired: &str, held: &str) -> bool {
    matches!((desired.parse::<Quantity>(), held.parse::<Quantity>()), (Ok(desired), Ok(held)) if desired == held)
}

/// Values omitted by Go's `omitempty`, for the optional fields of a slice.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(devices: Value) -> ResourceSliceSpec {
        serde_json::from_value(json!({
            "driver": "gpu.tessera.dev", "nodeName": "n", "devices": devices,
            "pool": {"name": "gpu.tessera.dev/n", "generation": 1, "resourceSliceCount": 1},
        }))
        .expect("a slice")
    }

    fn compare(desired: Value, held: Value) -> Vec<Difference> {
        differences(&spec(desired), &spec(held))
    }

    #[test]
    fn canonical_quantities_are_the_same_but_attributes_compare_as_text() {
        let device = |capacity: &str, attribute: &str| {
            json!([{"name": "a", "attributes": {"x": {"string": attribute}},
                "capacity": {"memory": {"value": capacity, "requestPolicy": {"default": capacity, "validValues": [capacity]}}},
                "consumesCounters": [{"counterSet": "a", "counters": {"m": {"value": capacity}}}]}])
        };
        assert_eq!(compare(device("1024Mi", "1Gi"), device("1Gi", "1Gi")), []);
        assert_eq!(
            compare(device("1Gi", "1Gi"), device("1Gi", "1024Mi")),
            [Difference::Changed("spec.devices[0].attributes.x.string".into())]
        );
        assert_eq!(
            compare(device("1Gi", "1Gi"), device("2Gi", "1Gi")).len(),
            4,
            "value, default, validValues and the counter"
        );
    }

    #[test]
    fn what_the_server_fills_in_or_leaves_out_is_no_difference() {
        let desired = json!([{"name": "a", "attributes": {}, "capacity": {}, "taints": [{"key": "k", "effect": "NoSchedule"}]}]);
        let held = json!([{"name": "a",
            "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-21T10:00:00Z"}]}]);
        assert_eq!(compare(desired, held), []);
    }

    #[test]
    fn dropped_changed_and_foreign_fields_are_named() {
        let desired = json!([
            {"name": "a", "consumesCounters": [{"counterSet": "a", "counters": {"m": {"value": "1"}}}]},
            {"name": "b", "attributes": {"index": {"int": 1}}}]);
        let held = json!([
            {"name": "a", "allowMultipleAllocations": true},
            {"name": "b", "attributes": {"index": {"int": 2}}},
            {"name": "c"}]);
        assert_eq!(
            compare(desired, held),
            [
                Difference::Missing("spec.devices[0].consumesCounters".into()),
                Difference::Added("spec.devices[0].allowMultipleAllocations".into()),
                Difference::Changed("spec.devices[1].attributes.index.int".into()),
                Difference::Added("spec.devices[2]".into()),
            ]
        );
    }

    #[test]
    fn the_order_of_devices_is_part_of_a_slice() {
        let [a, b] = [json!({"name": "a"}), json!({"name": "b"})];
        assert_eq!(compare(json!([a, b]), json!([b, a])).len(), 2);
    }
}
