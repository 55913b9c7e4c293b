//! A container sees exactly what its claims grant.

use std::collections::BTreeSet;

use serde_json::json;

use crate::stage::{DeviceNode, cards, container, play};

/// Device nodes that every container with a card needs.
const CONTROL: [&str; 4] =
    ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"];

#[tokio::test(flavor = "multi_thread")]
async fn devices_and_environment_are_exactly_what_the_claims_grant() {
    play("devices_and_environment_are_exactly_what_the_claims_grant", async |scene| {
        scene.template("two", &[cards("cards", 2)]).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "two"});
        scene.pod("pod", &[container("with", &["card"]), container("without", &[])], &[claim]).await;
        scene.ready("pod").await;
        let (with, without) = (scene.view("pod", "with").await, scene.view("pod", "without").await);
        let claim = scene.claim_of("pod").await;
        let minors = scene.minors(&claim).await;

        let added: BTreeSet<&DeviceNode> =
            with.devices.iter().filter(|node| !without.devices.contains(node)).collect();
        let paths: BTreeSet<&str> = added.iter().map(|node| node.path.as_str()).collect();
        let cards: Vec<String> = minors.iter().map(|minor| format!("/dev/nvidia{minor}")).collect();
        let granted: BTreeSet<&str> = cards.iter().map(String::as_str).chain(CONTROL).collect();
        assert_eq!(paths, granted);
        for node in &added {
            assert_eq!(node.kind, "character", "{node:?}");
            if let Some(minor) = node.path.strip_prefix("/dev/nvidia").and_then(|n| n.parse::<u64>().ok()) {
                assert_eq!((node.major, node.minor), (195, minor), "{node:?}");
            }
        }
        let missing: Vec<_> = without.devices.iter().filter(|node| !with.devices.contains(node)).collect();
        assert!(missing.is_empty(), "{missing:?}");

        let devices = scene.devices(&claim).await;
        let mut granted: BTreeSet<String> = devices
            .iter()
            .map(|device| device.replacen("gpu-", "GPU_DEVICE_", 1).replace('-', "_").to_ascii_uppercase())
            .collect();
        granted.insert("NVIDIA_VISIBLE_DEVICES".to_owned());
        let added: BTreeSet<String> = with
            .environment
            .keys()
            .filter(|name| !without.environment.contains_key(*name))
            .cloned()
            .collect();
        assert_eq!(added, granted);
        assert_eq!(with.environment["NVIDIA_VISIBLE_DEVICES"], "void");
    })
    .await;
}
