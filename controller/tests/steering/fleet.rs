//! Nodes with published cards, all in a steered pool.

use serde_json::{Value, json};
use tessera_harness::{Cluster, ClusterOptions};

pub const DRIVER: &str = "gpu.tessera.dev";

/// A control plane, nodes `n00`, `n01`, … with so many cards each, and the class `gpu`.
pub async fn start(nodes: usize, cards: usize) -> Cluster {
    let cluster = Cluster::start(ClusterOptions::scheduler_tier(0)).await.unwrap();
    let mut manifests = vec![json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
    })];
    let crd = <tessera_api::gpu_pool::GpuPool as kube::CustomResourceExt>::crd();
    manifests.push(serde_json::to_value(crd).unwrap());
    for count in [1, cards / 2, cards] {
        manifests.push(template(count));
    }
    apply(&cluster, &manifests).await;
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        cluster.add_node_object(name).await.unwrap();
    }
    let slices: Vec<Value> = names.iter().flat_map(|name| slices(name, cards)).collect();
    apply(&cluster, &slices).await;
    cluster
}

pub async fn apply(cluster: &Cluster, manifests: &[Value]) {
    let text: Vec<String> = manifests.iter().map(Value::to_string).collect();
    cluster.apply(&text.join("\n---\n")).await.unwrap();
}

/// A claim template for so many cards: `gpus-4`.
fn template(count: usize) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": format!("gpus-{count}"), "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "gpus", "exactly": { "deviceClassName": "gpu", "count": count } }] } } },
    })
}

fn slices(node: &str, cards: usize) -> [Value; 2] {
    let card = |number: usize| format!("gpu-{:02x}-00", number + 1);
    let slice = |suffix: &str, annotations: Value, contents: Value| {
        let mut spec = json!({
            "driver": DRIVER,
            "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 },
        });
        spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations },
            "spec": spec,
        })
    };
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let set =
        |number: usize| json!({ "name": format!("{}-counter-set", card(number)), "counters": counters });
    let device = |number: usize| {
        json!({
            "name": card(number),
            "attributes": { "type": { "string": "gpu" }, "gpuPool": { "string": "main" } },
            "capacity": { "memory": { "value": "80Gi" } },
            "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
        })
    };
    let in_pool = json!({ "pool": "main", "allocation": "Steered" });
    let reported: serde_json::Map<String, Value> =
        (0..cards).map(|number| (format!("0000:{:02x}:00.0", number + 1), in_pool.clone())).collect();
    let report = json!({ "cards": reported, "otherPairs": "SYS" }).to_string();
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": (0..cards).map(set).collect::<Vec<_>>() }),
        ),
        slice("2-cards", json!({}), json!({ "devices": (0..cards).map(device).collect::<Vec<_>>() })),
    ]
}
