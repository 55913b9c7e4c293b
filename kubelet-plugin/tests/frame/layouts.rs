//! Static layouts, from the command line to publishing and preparing.

use std::fs;

use serde_json::{Value, json};

use crate::{node::Node, plugin::Plugin};

#[tokio::test]
async fn a_layout_is_made_before_anything_is_published_and_its_partitions_are_prepared() {
    let node = Node::new("layouts", "hgx-h100-80gb").await;
    let file = node.directory().join("layouts.yaml");
    let text = r#"{version: v1, mig-configs: {halves: [
        {devices: [0], mig-enabled: true, mig-devices: {"4g.40gb": 1, "3g.40gb": 1}},
        {devices: [1], mig-enabled: false}]}}"#;
    fs::write(&file, text).unwrap();
    node.pool("halves", json!({"offer": {"layout": "halves"}})).await;
    let layout = ["--mig-layout-file".to_owned(), file.display().to_string()];
    let plugin = Plugin::start(node.directory(), &[node.arguments(), layout.to_vec()].concat());
    let registered = node.register().await;
    plugin.ready().await;
    let devices = node.devices().await;
    let of = |card: &str| devices.iter().filter(|name| name.starts_with(card)).cloned().collect::<Vec<_>>();
    let cards: Vec<String> = (0..3)
        .map(|index| {
            let pci: tessera_api::PciBusId =
                node.machine.cards()[index]["pci"].as_str().unwrap().parse().unwrap();
            tessera_api::DeviceName::Card(pci).to_string()
        })
        .collect();
    let halves = of(&cards[0]);
    assert_eq!(halves.len(), 2, "only what the layout made of the first: {halves:?}");
    assert!(halves[0].contains("-mig-3g40gb-") && halves[1].contains("-mig-4g40gb-"), "{halves:?}");
    assert_eq!(of(&cards[1]), [cards[1].clone()], "the second is whole");
    assert!(of(&cards[2]).len() > 10, "the others are partitioned on demand");

    let claim = node.claim(&[&halves[1]]).await;
    let answers = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    answers[&claim.uid].as_ref().unwrap();
    let spec: Value =
        serde_json::from_slice(&fs::read(node.cdi_directory().join(&node.specs()[0])).unwrap()).unwrap();
    assert!(
        spec.to_string().contains("NVIDIA_VISIBLE_DEVICES") || spec.to_string().contains("nvidia-cap"),
        "{spec}"
    );

    // Another layout waits for the claim, and its card takes no new claims.
    fs::write(&file, text.replace(r#"{"4g.40gb": 1, "3g.40gb": 1}"#, r#"{"7g.80gb": 1}"#)).unwrap();
    plugin.logged("the layout waits until the card is free").await;
    plugin
        .until("the card waits", || {
            plugin.get("/metrics").1.contains("tessera_mig_layout_cards{state=\"pending\"} 1")
        })
        .await;
    let is_tainted = async {
        loop {
            let slices = node.slices().await;
            let mut devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
            let held = devices.find(|device| device.name == halves[1]).unwrap();
            let mut taints = held.taints.iter().flatten();
            if taints.any(|taint| taint.value.as_deref() == Some("mig-layout-pending")) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(crate::plugin::LONG, is_tainted).await.expect("the taint is published");
    let answers = registered.unprepare(std::slice::from_ref(&claim)).await.unwrap();
    answers[&claim.uid].as_ref().unwrap();
    plugin
        .until("the other layout is made", || {
            plugin.get("/metrics").1.contains("tessera_mig_layout_cards{state=\"applied\"} 2")
        })
        .await;
    let is_published = async {
        loop {
            let devices = node.devices().await;
            let first: Vec<&String> = devices.iter().filter(|name| name.starts_with(&cards[0])).collect();
            if let [whole] = first[..]
                && whole.contains("-mig-7g80gb-0")
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(crate::plugin::LONG, is_published).await.expect("the other layout is published");
    plugin.terminate().await;
}
