//! A fleet of nodes with 8 managed cards, and pods asking for whole cards.

use serde_json::{Value, json};

/// Name of the DRA driver.
pub const DRIVER: &str = "gpu.tessera.dev";
/// Cards per node.
pub const CARDS: usize = 8;

/// Deserializes an object.
pub fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Name of a card.
pub fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

/// The class of all whole cards.
pub fn class() -> Value {
    let expression = format!("device.driver == '{DRIVER}'");
    json!({ "metadata": { "name": "gpu" }, "spec": { "selectors": [{ "cel": { "expression": expression } }] } })
}

/// Slices of a node whose cards belong to a pool with this placement.
pub fn slices(node: &str, placement: &Value) -> [Value; 2] {
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let set =
        |number: usize| json!({ "name": format!("{}-counter-set", card(number)), "counters": counters });
    let device = |number: usize| {
        json!({
            "name": card(number),
            "taints": [{ "key": "gpu.tessera.dev/managed", "effect": "NoSchedule" }],
            "attributes": { "type": { "string": "gpu" } },
            "capacity": { "memory": { "value": "80Gi" } },
            "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
        })
    };
    let pool = json!({ "pool": "main", "allocation": "Managed", "placement": placement });
    let cards: serde_json::Map<String, Value> =
        (0..CARDS).map(|number| (format!("0000:{:02x}:00.0", number + 1), pool.clone())).collect();
    let report = json!({ "cards": cards, "otherPairs": "SYS" }).to_string();
    let slice = |suffix: &str, annotations: Value, content: Value| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 } });
        spec.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        json!({ "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations }, "spec": spec })
    };
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": (0..CARDS).map(set).collect::<Vec<_>>() }),
        ),
        slice("1-cards", json!({}), json!({ "devices": (0..CARDS).map(device).collect::<Vec<_>>() })),
    ]
}

/// A pod's claim for whole cards.
pub fn claim(pod: &str, cards: usize) -> Value {
    json!({
        "metadata": { "name": format!("{pod}-c"), "namespace": "n", "uid": format!("claim-{pod}"), "resourceVersion": "1",
            "annotations": { "gpu.tessera.dev/controller-epoch": "one" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": cards } }] } },
    })
}

/// A gang's pod, with a gate and a claim.
pub fn member(gang: &str, number: usize, size: usize) -> Value {
    let name = format!("{gang}-{number}");
    json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": {
            "gpu.tessera.dev/group": gang, "gpu.tessera.dev/group-size": size.to_string() } },
        "spec": { "schedulingGates": [{ "name": "gpu.tessera.dev/steering" }],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }],
            "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] },
        "status": { "phase": "Pending",
            "resourceClaimStatuses": [{ "name": "c", "resourceClaimName": format!("{name}-c") }] },
    })
}
