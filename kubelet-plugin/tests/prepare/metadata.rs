//! Metadata of a claim's devices for its containers.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;

use crate::support::{Node, claim, prepare};

/// The devices in the file of a request, as its newest version says.
fn told(node: &Node, claim: &ClaimReference, request: &str) -> Value {
    let spec = node.path().join("cdi").join(format!("gpu.tessera.dev-metadata_{}.json", claim.uid));
    let spec: Value = serde_json::from_slice(&fs::read(spec).unwrap()).unwrap();
    let name = format!("{}_{request}", claim.uid);
    let device = spec["devices"].as_array().unwrap().iter().find(|device| device["name"] == name.as_str());
    let path = device.unwrap()["containerEdits"]["mounts"][0]["hostPath"].as_str().unwrap().to_owned();
    let file = fs::read(path).unwrap();
    let mut objects = serde_json::Deserializer::from_slice(&file).into_iter::<Value>();
    let newest = objects.next().unwrap().unwrap();
    assert_eq!(newest["metadata"]["uid"], claim.uid.as_str());
    newest["requests"][0].clone()
}

#[tokio::test]
async fn cards_and_partitions_are_told_as_published_and_with_what_they_became() {
    let node = Node::new(2);
    let mut card = Card::new("0000:01:00.0".parse().unwrap());
    card.uuid = Some("GPU-0".into());
    card.product_name = Some("NVIDIA H100".into());
    let machine =
        Machine { cards: vec![card], driver_version: Some("580.95.05".into()), ..Machine::default() };
    node.published.send_replace(Some(Arc::new(machine)));
    let (preparer, claim) = (node.start().await, claim("a"));
    let part = "gpu-01-00-mig-1g10gb-6";
    node.api.allocate(
        &claim,
        &[("part/small", part), ("part/small", "gpu-01-00-mig-1g10gb-5"), ("card", "gpu-02-00")],
    );
    prepare(&preparer, &claim).await.unwrap();

    let request = told(&node, &claim, "part");
    assert_eq!(request["name"], "part/small");
    assert_eq!(request["devices"].as_array().unwrap().len(), 2);
    assert_eq!(
        request["devices"][0],
        json!({
            "driver": "gpu.tessera.dev", "pool": "gpu.tessera.dev/node-a", "name": part,
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": "1g.10gb"},
                "uuid": {"string": "MIG-GPU-0-1"},
                "parentUUID": {"string": "GPU-0"},
                "productName": {"string": "NVIDIA H100"},
                "driverVersion": {"version": "580.95.5"},
                "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
            },
        })
    );
    // For an unpublished card only the facts of its claim's record.
    assert_eq!(
        told(&node, &claim, "card")["devices"][0]["attributes"],
        json!({
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-1"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:02:00.0"},
        })
    );
}
