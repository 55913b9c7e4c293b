//! Claims changing while being examined or waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use tessera_fakes::poll::until;

use crate::support::{Node, claim, prepare};

/// Far more time than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A claim was deallocated and forgotten by the kubelet when a sweep asked. Before the sweep goes on, the claim is
/// allocated this card, and prepared anew.
async fn prepared_anew_while_it_is_looked_at(card: &str) {
    let node = Node::new(2);
    let (preparer, mine) = (node.start().await, claim("mine"));
    node.api.allocate(&mine, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &mine).await.unwrap();
    node.api.put_status(&mine, json!({}));
    node.checkpoint(&[]);
    let (other, disk) = node.start_on(None).await;
    let gate = disk.hold_read("dra_manager_state");
    let sweeping = tokio::spawn(async move { other.unwrap().sweep().await });
    until("the look at the kubelet's checkpoint", || gate.is_reached()).await;
    node.api.allocate(&mine, &[("gpus", card)]);
    node.checkpoint(&[&mine]);
    prepare(&preparer, &mine).await.unwrap();
    drop(gate);
    sweeping.await.unwrap().unwrap();
    assert_eq!(node.settled()["uid-mine"], BTreeSet::from([card.to_owned()]));
}

#[tokio::test]
async fn what_is_prepared_anew_while_it_is_looked_at_is_not_released() {
    prepared_anew_while_it_is_looked_at("gpu-02-00").await;
}

/// Its record equals the sweep's copy.
#[tokio::test]
async fn what_is_prepared_anew_as_it_was_is_not_released() {
    prepared_anew_while_it_is_looked_at("gpu-01-00").await;
}

/// Another claim keeps its card busy for seconds. Meanwhile the claim is allocated another device.
#[tokio::test]
async fn what_is_allocated_anew_while_it_queues_for_its_card_gets_what_it_has_now() {
    let mut node = Node::new(2);
    node.answer_within = LONG;
    let (preparer, slow, mine) = (node.start().await, claim("slow"), claim("mine"));
    node.api.allocate(&slow, &[("gpus", "gpu-01-00-mig-1g10gb-0")]);
    node.api.allocate(&mine, &[("gpus", "gpu-01-00-mig-1g10gb-1")]);
    node.cards.slow_function("nvmlDeviceCreateGpuInstanceWithPlacement", Duration::from_secs(4));
    let start = |claim| {
        let preparer = preparer.clone();
        tokio::spawn(async move { prepare(&preparer, &claim).await })
    };
    let working = start(slow);
    until("the driver's call", || node.cards.fault_calls() > 0).await;
    node.cards.heal();
    let waiting = start(mine.clone());
    until("that it queues", || node.seen.waiting().contains(&("busy", true))).await;
    assert!(!working.is_finished());
    node.api.allocate(&mine, &[("gpus", "gpu-02-00")]);
    working.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap()[0].device_name, "gpu-02-00");
    assert_eq!(node.settled()["uid-mine"], BTreeSet::from(["gpu-02-00".to_owned()]));
}
