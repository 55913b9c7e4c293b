//! Nodes with published cards.

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::{Allocation, GpuPool};
use tessera_api::managed;
use tessera_harness::Cluster;

const DRIVER: &str = "gpu.tessera.dev";
/// Cards of a node.
pub const CARDS: usize = 8;

/// Who allocates the cards of a node; also the name of its pool.
pub type Pool = (&'static str, Allocation);

/// All nodes in a steered pool.
pub const STEERED: [Pool; 1] = [("steered", Allocation::Steered)];

/// One node in a managed pool, the next in a native one.
pub const MANAGED: [Pool; 2] = [("managed", Allocation::Managed), ("native", Allocation::Native)];

/// Requests at once.
const AT_ONCE: usize = 16;

/// Makes the nodes in these pools in turn, their slices, the kind GpuPool, and for each pool a class and a claim
/// template with its name for one card; and a template for all cards of a node, with the suffix `-node`.
pub async fn publish(cluster: &Cluster, nodes: usize, pools: &[Pool]) -> Result<()> {
    let mut manifests = vec![serde_json::to_string(&GpuPool::crd())?];
    for (name, _) in pools {
        let expression =
            format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].gpuPool == '{name}'");
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        });
        let template = |template: String, count: usize| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": { "name": template, "namespace": "default" },
                "spec": { "spec": { "devices": { "requests": [
                    { "name": "gpu", "exactly": { "deviceClassName": name, "count": count } }] } } },
            })
            .to_string()
        };
        let whole_node = template(format!("{name}-node"), CARDS);
        manifests.extend([class.to_string(), template((*name).to_owned(), 1), whole_node]);
    }
    cluster.apply(&manifests.join("\n---\n")).await?;
    let api: Api<ResourceSlice> = Api::all(cluster.client().await?);
    let node = |number: usize| {
        let api = api.clone();
        let pool = pools[number % pools.len()];
        async move {
            let name = format!("n{number:04}");
            cluster.add_node_object(&name).await?;
            for slice in slices(&name, pool) {
                api.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
            }
            anyhow::Ok(())
        }
    };
    futures::stream::iter(0..nodes).map(node).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

fn slices(node: &str, (pool, allocation): Pool) -> [Value; 2] {
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
    let taints = match allocation {
        Allocation::Managed => json!([{ "key": managed::TAINT_KEY, "effect": "NoSchedule" }]),
        _ => json!([]),
    };
    let devices: Vec<Value> = (0..CARDS)
        .map(|number| {
            json!({
                "name": card(number),
                "attributes": { "type": { "string": "gpu" }, "gpuPool": { "string": pool } },
                "taints": taints,
                "capacity": { "memory": { "value": "80Gi" } },
                "consumesCounters": [{ "counterSet": format!("{}-counter-set", card(number)), "counters": counters }],
            })
        })
        .collect();
    let in_pool = json!({ "pool": pool, "allocation": allocation });
    let cards: serde_json::Map<String, Value> =
        (0..CARDS).map(|number| (format!("0000:{:02x}:00.0", number + 1), in_pool.clone())).collect();
    let report = json!({ "cards": cards, "otherPairs": "SYS" }).to_string();
    [
        slice(
            "0-counters",
            json!({ "gpu.tessera.dev/node-report": report }),
            json!({ "sharedCounters": sets }),
        ),
        slice("1-cards", json!({}), json!({ "devices": devices })),
    ]
}
