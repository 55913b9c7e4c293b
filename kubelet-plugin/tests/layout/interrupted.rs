//! The driver fails, the plugin dies, the node reboots: in the end the cards match the layout.

use std::time::Duration;

use tessera_kubelet_plugin::layout::LayoutState;

use crate::node::{Node, one};

const BALANCED: &str = r#"{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}"#;

/// Every driver call for a layout fails once, before and after its effect.
#[tokio::test]
async fn a_driver_that_fails_at_any_call() {
    for call in [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceSetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceGetInfo",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlGpuInstanceDestroy",
        "nvmlComputeInstanceDestroy",
    ] {
        for after in ["", "--after"] {
            let mut node = Node::prepared("hgx-h100-80gb", &one(BALANCED), Some("one"), |machine| {
                machine
                    .let_happen(&format!("fault --card 0 --call {call} --error UNKNOWN --times 1 {after}"));
            });
            node.until_all("one", LayoutState::Applied).await;
            assert_eq!(node.partitions(0).len(), 4, "{call} {after}");
            node.machine
                .let_happen(&format!("fault --card 0 --call {call} --error UNKNOWN --times 1 {after}"));
            let mut node = node.restart(None);
            let gone = node.status.wait_for(|status| status.settled && status.cards.is_empty());
            tokio::time::timeout(Duration::from_secs(120), gone).await.unwrap().unwrap();
            assert!(!node.mode(0), "{call} {after}");
            assert_eq!(node.records(), [""; 0], "{call} {after}");
        }
    }
}

/// Killed while making partitions, several times, at different moments.
#[tokio::test]
async fn a_plugin_that_dies_again_and_again() {
    let mut node = Node::prepared("hgx-h100-80gb", &one(BALANCED), None, |machine| {
        machine.let_happen("partition-time --create-ms 60 --destroy-ms 60");
    });
    node.status.wait_for(|status| status.settled).await.unwrap();
    for (round, name) in [Some("one"), None].into_iter().cycle().take(24).enumerate() {
        node = node.restart(name);
        tokio::time::sleep(Duration::from_millis(300 + 37 * round as u64)).await;
    }
    let mut node = node.restart(Some("one"));
    node.until_all("one", LayoutState::Applied).await;
    for card in 0..node.cards.len() {
        assert_eq!(node.partitions(card).len(), 4);
    }
    assert_eq!(node.records().len(), 8);
    let mut node = node.restart(None);
    let gone = node.status.wait_for(|status| status.settled && status.cards.is_empty());
    tokio::time::timeout(Duration::from_secs(120), gone).await.unwrap().unwrap();
    assert!((0..node.cards.len()).all(|card| !node.mode(card)));
    assert_eq!(node.records(), [""; 0]);
}

#[tokio::test]
async fn after_a_reboot_the_layout_is_made_again() {
    let mut node = Node::start("hgx-h100-80gb", &one(BALANCED), "one");
    node.until_all("one", LayoutState::Applied).await;
    node.machine.let_happen("reboot");
    let mut node = node.restart(Some("one"));
    assert!(!node.mode(0) && node.partitions(0).is_empty(), "nothing outlives it");
    node.until_all("one", LayoutState::Applied).await;
    assert_eq!(node.partitions(0).len(), 4);
}
