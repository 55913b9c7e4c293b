//! Whole cards and partitions held by several claims at once, in the manner of NVIDIA's driver and under its name.

use serde_json::{Value, json};
use tessera_kubelet_plugin::prepare::PrepareError;

use crate::node::{Node, claim, prepare, unprepare};

fn node() -> Node {
    let node = Node::named_as_nvidias("hgx-h100-80gb");
    node.offer(&json!({"sharing": {"consumableShares": {"mode": "Shares", "shares": 4}}}));
    node
}

/// The device nodes of a claim's containers.
fn device_nodes(node: &Node, of: &str) -> Vec<Value> {
    let spec = node.spec(&claim(of));
    let devices = spec["devices"].as_array().unwrap();
    let nodes = devices.iter().flat_map(|device| device["containerEdits"]["deviceNodes"].as_array());
    nodes.flatten().map(|device| device["path"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_on_one_card_have_the_same_device_and_leave_one_by_one() {
    let node = node();
    let preparer = node.start().await;
    let device = node.device(2, "");
    for name in ["one", "other"] {
        node.allocate_share(&claim(name), &device, &[]);
        prepare(&preparer, &claim(name)).await.unwrap();
    }
    let nodes = device_nodes(&node, "one");
    assert!(!nodes.is_empty());
    assert_eq!(nodes, device_nodes(&node, "other"));
    // A claim for exclusive use of the card is still refused.
    node.allocate_configured(&claim("alone"), &[("gpu", &device)], &[]);
    let refusal = prepare(&preparer, &claim("alone")).await.unwrap_err().to_string();
    assert!(refusal.contains("ns/one") || refusal.contains("ns/other"), "{refusal}");
    unprepare(&preparer, &claim("one")).await.unwrap();
    assert_eq!(device_nodes(&node, "other"), nodes);
    unprepare(&preparer, &claim("other")).await.unwrap();
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_made_for_the_first_claim_and_destroyed_after_the_last() {
    let node = node();
    let mut preparer = node.start().await;
    let device = node.device(1, "mig-1g10gb-6");
    let instances = || node.host.card(1)["mig"]["instances"].as_array().map_or(0, Vec::len);
    for name in ["one", "other"] {
        node.allocate_share(&claim(name), &device, &[]);
        prepare(&preparer, &claim(name)).await.unwrap();
        assert_eq!(instances(), 1, "{name}");
    }
    assert_eq!(device_nodes(&node, "one"), device_nodes(&node, "other"));
    drop(preparer);
    preparer = node.start().await;
    unprepare(&preparer, &claim("one")).await.unwrap();
    assert_eq!(instances(), 1, "the other claim has it");
    unprepare(&preparer, &claim("other")).await.unwrap();
    assert_eq!(instances(), 0);
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_on_one_card_ask_for_one_interval_and_for_no_daemon() {
    let node = node();
    let preparer = node.start().await;
    let device = node.device(0, "");
    let by_time =
        |interval: &str| json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}});
    for name in ["one", "same"] {
        node.allocate_share(&claim(name), &device, &[("GpuConfig", by_time("Long"))]);
        prepare(&preparer, &claim(name)).await.unwrap();
    }
    assert_eq!(node.host.card(0)["timeSlice"], 3);
    for (name, sharing, says) in [
        ("another", by_time("Short"), "the same interval"),
        ("daemon", json!({"strategy": "MPS"}), "sharing.consumableShares"),
    ] {
        node.allocate_share(&claim(name), &device, &[("GpuConfig", sharing)]);
        let error = prepare(&preparer, &claim(name)).await.unwrap_err();
        assert!(matches!(error, PrepareError::Sharing { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        unprepare(&preparer, &claim(name)).await.unwrap();
    }
    unprepare(&preparer, &claim("one")).await.unwrap();
    assert_eq!(node.host.card(0)["timeSlice"], 3);
    unprepare(&preparer, &claim("same")).await.unwrap();
    assert!(node.is_empty().await);
}
