//! Lost parts of a prepared claim are made again. The rest may be in use by its containers and is not touched.

use std::fs;

use serde_json::{Value, json};
use tessera_dra_kubelet::ClaimReference;

use crate::support::{Behaviour, Node, claim, prepare, result, unprepare};

const SMALL: u32 = 19;

/// A node with a prepared claim of these devices.
async fn prepared(cards: u8, devices: &[&str]) -> (Node, ClaimReference) {
    let (node, mine) = (Node::new(cards), claim("mine"));
    let results: Vec<(&str, &str)> = devices.iter().map(|device| ("gpus", *device)).collect();
    node.api.allocate(&mine, &results);
    prepare(&node.start().await, &mine).await.unwrap();
    (node, mine)
}

fn instances(node: &Node, mine: &ClaimReference, device: usize) -> Value {
    node.record(mine)["devices"][device]["partition"]["instances"].clone()
}

fn gpu_instance(node: &Node, mine: &ClaimReference, device: usize) -> u32 {
    instances(node, mine, device)["gpuInstance"].as_u64().unwrap() as u32
}

#[tokio::test]
async fn only_the_partition_that_is_gone_is_made_anew() {
    for in_use in [true, false] {
        let (node, mine) = prepared(2, &["gpu-01-00-mig-1g10gb-6", "gpu-02-00-mig-1g10gb-6"]).await;
        let (kept, lost) = (instances(&node, &mine, 0), instances(&node, &mine, 1));
        if in_use {
            node.cards.run(0, 4711, Some(gpu_instance(&node, &mine, 0)));
        }
        node.cards.admin_destroys(1, gpu_instance(&node, &mine, 1));
        // No call is needed.
        node.api.behave(Behaviour::Status(503, "away"));
        node.start().await.repair().await.unwrap();
        assert_eq!(instances(&node, &mine, 0), kept, "the partition that nobody touched was replaced");
        assert_ne!(instances(&node, &mine, 1), lost);
        let spec = node.spec(&mine).to_string();
        for device in 0..2 {
            assert!(spec.contains(instances(&node, &mine, device)["uuid"].as_str().unwrap()), "{spec}");
        }
        node.settled();
    }
}

#[tokio::test]
async fn of_two_partitions_of_one_card_the_other_stays() {
    let (node, mine) = prepared(1, &["gpu-01-00-mig-1g10gb-6", "gpu-01-00-mig-3g40gb-0"]).await;
    let kept = instances(&node, &mine, 0);
    node.cards.admin_destroys(0, gpu_instance(&node, &mine, 1));
    let preparer = node.start().await;
    prepare(&preparer, &mine).await.unwrap();
    assert_eq!(instances(&node, &mine, 0), kept);
    node.settled();
    unprepare(&preparer, &mine).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_repair_that_fails_leaves_what_there_is() {
    // Both partitions of the second card are gone, and somebody else's is in the place of one.
    let devices = ["gpu-01-00", "gpu-02-00-mig-1g10gb-6", "gpu-02-00-mig-1g10gb-5"];
    let (node, mine) = prepared(2, &devices).await;
    let (record, spec) = (node.record(&mine), node.spec(&mine));
    for device in [1, 2] {
        node.cards.admin_destroys(1, gpu_instance(&node, &mine, device));
    }
    let foreign = node.cards.admin_instance((1, SMALL, 6), true);
    let preparer = node.start().await;
    preparer.repair().await.unwrap();
    assert_eq!((node.record(&mine), node.spec(&mine)), (record.clone(), spec.clone()));
    let error = prepare(&preparer, &mine).await.unwrap_err();
    assert_eq!(error.reason(), "foreign_instance", "{error}");
    assert_eq!((node.record(&mine), node.spec(&mine)), (record, spec), "the claim's pods run with it");
    assert_eq!(node.cards.instances().0, [(1, SMALL, 6)]);
    // The whole card of the claim is still held.
    let other = claim("other");
    node.api.allocate(&other, &[("gpus", "gpu-01-00")]);
    assert_eq!(prepare(&preparer, &other).await.unwrap_err().reason(), "held");

    node.cards.admin_destroys(1, foreign);
    preparer.repair().await.unwrap();
    assert_eq!(node.settled()[&mine.uid].len(), 3);
    unprepare(&preparer, &mine).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn what_somebody_made_in_the_place_of_a_partition_is_not_taken_for_it() {
    let (node, mine) = prepared(1, &["gpu-01-00-mig-1g10gb-6"]).await;
    node.cards.admin_destroys(0, gpu_instance(&node, &mine, 0));
    node.cards.admin_instance((0, SMALL, 6), true);
    let preparer = node.start().await;
    let error = prepare(&preparer, &mine).await.unwrap_err();
    assert_eq!(error.reason(), "foreign_instance", "{error}");
    unprepare(&preparer, &mine).await.unwrap();
    assert_eq!(node.cards.instances().0, [(0, SMALL, 6)]);
}

#[tokio::test]
async fn a_lost_card_is_not_repaired_and_does_not_stop_the_repair_of_another() {
    let (node, mine) = prepared(2, &["gpu-01-00-mig-1g10gb-6", "gpu-02-00-mig-1g10gb-6"]).await;
    let kept = instances(&node, &mine, 0);
    node.cards.admin_destroys(1, gpu_instance(&node, &mine, 1));
    node.cards.lose(0);
    let preparer = node.start().await;
    preparer.repair().await.unwrap();
    node.cards.restore(0);
    assert_eq!(instances(&node, &mine, 0), kept);
    node.settled();
}

/// A reloaded driver numbers cards anew. Another pod of the claim must not get another card.
#[tokio::test]
async fn a_prepared_claim_is_told_again_with_the_numbers_of_now_and_not_of_another_card() {
    let (node, mine) = prepared(1, &["gpu-01-00"]).await;
    let preparer = node.start().await;
    node.cards.change(0, |card| card.minor = 5);
    prepare(&preparer, &mine).await.unwrap();
    assert_eq!(node.record(&mine)["devices"][0]["minor"], 5);
    assert!(node.spec(&mine).to_string().contains("/dev/nvidia5"), "{}", node.spec(&mine));

    node.cards.replace(0);
    let error = prepare(&preparer, &mine).await.unwrap_err();
    assert_eq!(error.reason(), "other_card", "{error}");
}

/// The kubelet asks again for a claim at the start of every other pod with the claim.
#[tokio::test]
async fn a_damaged_record_is_made_again_from_what_is_there() {
    for content in ["", "{", "null"] {
        let devices = ["gpu-01-00-mig-1g10gb-6", "gpu-02-00"];
        let (node, mine) = prepared(2, &devices).await;
        let before = node.record(&mine);
        fs::write(node.record_path(&mine), content).unwrap();
        let preparer = node.start().await;
        prepare(&preparer, &mine).await.unwrap();
        assert_eq!(node.record(&mine), before, "the first pod's partition was replaced");
        node.settled();
        unprepare(&preparer, &mine).await.unwrap();
        assert!(node.settled().is_empty());
    }
}

#[tokio::test]
async fn a_damaged_record_of_another_allocation_is_replaced() {
    let (node, mine) = prepared(2, &["gpu-01-00-mig-1g10gb-6"]).await;
    fs::write(node.record_path(&mine), "{").unwrap();
    node.api.allocate(&mine, &[("gpus", "gpu-02-00-mig-1g10gb-0")]);
    let preparer = node.start().await;
    prepare(&preparer, &mine).await.unwrap();
    preparer.sweep().await.unwrap();
    assert_eq!(node.settled()[&mine.uid].iter().collect::<Vec<_>>(), ["gpu-02-00-mig-1g10gb-0"]);
    assert_eq!(node.cards.instances().1, [(1, SMALL, 0)]);
}

#[tokio::test]
async fn a_damaged_record_whose_claim_ends_leaves_nothing() {
    let (node, mine) = prepared(1, &["gpu-01-00-mig-1g10gb-6"]).await;
    fs::write(node.record_path(&mine), "{").unwrap();
    let preparer = node.start().await;
    unprepare(&preparer, &mine).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_of_a_share_keeps_its_daemon() {
    let node = Node::sharing(1);
    let config = json!({"sharing": {"mps": {"defaultShares": 4}}});
    node.offer(&config);
    let mine = claim("mine");
    let mut share = result("mps", "gpu-01-00-mps");
    share["shareID"] = json!("5ba7e000-0000-4000-8000-000000000001");
    share["consumedCapacity"] = json!({"memory": "4Gi", "compute": "25", "clients": "1"});
    node.api.put(&mine, vec![share]);
    let preparer = node.start().await;
    prepare(&preparer, &mine).await.unwrap();
    let (record, starts) = (node.record(&mine), node.mps.as_ref().unwrap().starts());
    fs::write(node.record_path(&mine), "{").unwrap();
    let preparer = node.start().await;
    prepare(&preparer, &mine).await.unwrap();
    assert_eq!(node.record(&mine), record);
    assert_eq!(node.mps.as_ref().unwrap().starts(), starts, "its clients lost their daemon");
    unprepare(&preparer, &mine).await.unwrap();
    assert!(node.settled().is_empty());
}
