//! Nodes with published cards, all in a steered pool.

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::GpuPool;
use tessera_harness::Cluster;

const DRIVER: &str = "gpu.tessera.dev";
const CARDS: usize = 8;

/// Requests at once.
const AT_ONCE: usize = 16;

/// Makes the nodes, their slices, the class, the claim template `one`, and the kind GpuPool.
pub async fn publish(cluster: &Cluster, nodes: usize) -> Result<()> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
    });
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": "one", "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } } },
    });
    let pools = serde_json::to_string(&GpuPool::crd())?;
    cluster.apply(&format!("{class}\n---\n{template}\n---\n{pools}")).await?;
    let api: Api<ResourceSlice> = Api::all(cluster.client().await?);
    let node = |number: usize| {
        let api = api.clone();
        async move {
            let name = format!("n{number:04}");
            cluster.add_node_object(&name).await?;
            for slice in slices(&name) {
                api.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
            }
            anyhow::Ok(())
        }
    };
    futures::stream::iter(0..nodes).map(node).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

fn slices(node: &str) -> [Value; 2] {
    let card = |number: usize| format!("gpu-{:02x}-00", number + 1);
    let counters = json!({ "memory-slice-0": { "value": "1" } });
    let slice = |suffix: &str, annotations: Value, contents: Value| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": node,
            "pool": { "name": format!("{DRIVER}/{node}"), "generation": 1, "resourceSliceCount": 2 } });
        if let (Some(spec), Some(contents)) = (spec.as_object_mut(), contents.as_object()) {
            spec.extend(contents.clone());
        }
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": format!("{node}-{suffix}"), "annotations": annotations }, "spec": spec })
    };
    let sets: Vec<Value> = (0..CARDS)
        .map(|number| json!({ "name": format!("{}-counter-set", card(number)), "counters": counters }))
        .collect();
    let devices: Vec<Value> = (0..CARDS)
        .map(|number| {
            json!({
                "name": card(number),
                "attributes": { "type": { "string": "gpu" } },
                "capacity": { "memory": { "value": "80Gi" } },
                "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
            })
        })
        .collect();
    let in_pool = json!({ "pool": "main", "allocation": "Steered" });
    let cards: serde_json::Map<String, Value> =
        (0..CARDS).map(|number| (format!("0000:{:02x}:00.0", number + 1), in_pool.clone())).collect();
    let report = json!({ "cards": cards, "otherPairs": "SYS" }).to_string();
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": sets }),
        ),
        slice("2-cards", json!({}), json!({ "devices": devices })),
    ]
}
