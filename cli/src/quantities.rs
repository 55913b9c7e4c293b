//! Quantities written as bare numbers.

use serde_json::Value;

/// Turns bare numbers where quantities belong into strings: Kubernetes accepts both, the types used here only strings.
pub fn as_text(object: &mut Value) {
    walk(object, "", "");
}

fn walk(value: &mut Value, key: &str, above: &str) {
    const MAPS: [&str; 6] = ["requests", "limits", "capacity", "allocatable", "consumedCapacity", "overhead"];
    let is_quantity = MAPS.contains(&above)
        || key == "value" && above == "quantity"
        || matches!(key, "default" | "min" | "max" | "step")
            && matches!(above, "requestPolicy" | "validRange")
        || above == "validValues";
    // In attributes and opaque parameters, any name and number is left unchanged.
    if matches!(key, "attributes" | "parameters") {
        return;
    }
    match value {
        Value::Number(number) if is_quantity => *value = Value::String(number.to_string()),
        Value::Array(items) => {
            for item in items {
                walk(item, "", key);
            }
        }
        Value::Object(entries) => {
            // Values of capacities and counters are one level deeper: name, then value.
            let is_named = matches!(above, "capacity" | "counters") && key != "requests";
            let within = if is_named { "quantity" } else { key };
            for (name, item) in entries.iter_mut() {
                walk(item, name, within);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_quantities_change() {
        let mut object = json!({ "spec": {
            "pool": { "generation": 1 },
            "devices": [{
                "attributes": { "index": { "int": 0 } },
                "capacity": { "memory": { "value": 80, "requestPolicy": { "default": 1, "validValues": [1, 2] } } },
                "consumesCounters": [{ "counters": { "slice": { "value": 1 } } }],
            }],
            "requests": [{ "exactly": { "count": 2, "capacity": { "requests": { "memory": 40 } } } }],
        } });
        as_text(&mut object);
        assert_eq!(
            object,
            json!({ "spec": {
            "pool": { "generation": 1 },
            "devices": [{
                "attributes": { "index": { "int": 0 } },
                "capacity": {
                    "memory": { "value": "80", "requestPolicy": { "default": "1", "validValues": ["1", "2"] } },
                },
                "consumesCounters": [{ "counters": { "slice": { "value": "1" } } }],
            }],
            "requests": [{ "exactly": { "count": 2, "capacity": { "requests": { "memory": "40" } } } }],
        } })
        );
    }
}
