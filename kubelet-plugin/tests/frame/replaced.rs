//! Swapped and added cards, and a driver update, while the plugin runs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tessera_harness::kubelet_stand_in::{Claim, Plugin as Registered};

use crate::{node::Node, plugin::LONG};

/// The value of a text attribute of each device, by the device's name.
async fn attribute(node: &Node, name: &str) -> Vec<(String, String)> {
    let devices = node.slices().await.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let value = |device: k8s_openapi::api::resource::v1::Device| {
        let value = device.attributes.unwrap_or_default().remove(name)?;
        Some((device.name, value.string.or(value.version)?))
    };
    devices.filter_map(value).collect()
}

async fn prepare(plugin: &Registered, claim: &Claim) -> Result<(), String> {
    plugin.prepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap().map(drop)
}

async fn unprepare(plugin: &Registered, claim: &Claim) -> Result<(), String> {
    plugin.unprepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap().map(drop)
}

#[tokio::test]
async fn a_swapped_card_gets_new_claims_and_none_of_the_old_one() {
    let node = Node::new("swap", "l40s-x8").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    let devices = node.devices().await;
    let before = attribute(&node, "uuid").await;
    let used = node.claim(&[&devices[0]]).await;
    let other = node.claim(&[&devices[2]]).await;
    let waiting = node.claim(&[&devices[1]]).await;
    for claim in [&used, &other] {
        prepare(&registered, claim).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for card in [0, 1] {
        node.machine.let_happen(&format!("unplug --card {card}"));
        node.machine.let_happen(&format!("plug --card {card} --seed other"));
    }
    // Nothing of the other cards changes, though the driver library is closed and opened.
    let (since, mut tainted) = (Instant::now(), BTreeSet::new());
    loop {
        tainted.extend(node.tainted().await.into_iter().map(|(device, _)| device));
        let now = attribute(&node, "uuid").await;
        if now.iter().zip(&before).filter(|(now, before)| now != before).count() == 2 {
            break;
        }
        assert!(since.elapsed() < LONG, "{now:?}: {}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(tainted.iter().all(|device| devices[..2].contains(device)), "{tainted:?}");
    plugin.until("well", || plugin.get("/readyz").0 == 200).await;
    assert_eq!(node.tainted().await, []);
    node.until_event("CardReplaced").await;

    let refused = prepare(&registered, &used).await.unwrap_err();
    assert!(refused.contains(&before[0].1) && refused.contains("delete the pod"), "{refused}");
    let refused = prepare(&registered, &waiting).await.unwrap_err();
    assert!(refused.contains("was allocated at") && refused.contains("delete the pod"), "{refused}");
    prepare(&registered, &other).await.unwrap();
    for claim in [&used, &other] {
        unprepare(&registered, claim).await.unwrap();
    }
    assert_eq!(node.specs(), [""; 0], "nothing is left of the old card's claim");
    let new = node.claim(&[&devices[0]]).await;
    prepare(&registered, &new).await.unwrap();

    // The next instance knows the card's history too.
    plugin.terminate().await;
    let plugin = node.plugin(Some("uid-b"));
    let registered = node.register().await;
    plugin.ready().await;
    let refused = prepare(&registered, &waiting).await.unwrap_err();
    assert!(refused.contains("was allocated at"), "{refused}");
    prepare(&registered, &new).await.unwrap();
    unprepare(&registered, &new).await.unwrap();
    unprepare(&registered, &waiting).await.unwrap();
    assert_eq!(node.specs(), [""; 0]);
}

#[tokio::test]
async fn a_partition_that_went_with_its_card_is_not_made_on_the_next() {
    let node = Node::new("part", "hgx-h100-80gb").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let devices = node.devices().await;
    let card = node.machine.cards()[0]["pci"].as_str().unwrap().to_owned();
    let start = format!(
        "gpu-{}-mig-1g10gb-0",
        card.trim_start_matches("0000:").trim_end_matches(".0").replace(':', "-")
    );
    let device = devices.iter().find(|device| **device == start).unwrap();
    let claim = node.claim(&[device]).await;
    prepare(&registered, &claim).await.unwrap();
    let before = attribute(&node, "uuid").await;
    node.machine.let_happen("unplug --card 0");
    node.machine.let_happen("plug --card 0 --seed other");
    plugin
        .until("the new card is seen", || plugin.log_text().contains("another card is in this place"))
        .await;
    let refused = prepare(&registered, &claim).await.unwrap_err();
    assert!(refused.contains("delete the pod"), "{refused}");
    let machine = node.machine.root();
    let smi =
        std::process::Command::new(machine.join("bin/nvidia-smi")).args(["mig", "-lgi"]).output().unwrap();
    let listed = String::from_utf8_lossy(&smi.stdout).into_owned();
    assert!(!listed.contains("1g.10gb"), "{listed}");
    let since = Instant::now();
    while attribute(&node, "uuid").await == before {
        assert!(since.elapsed() < LONG, "the new card is not published: {}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unprepare(&registered, &claim).await.unwrap();
    assert_eq!(node.specs(), [""; 0]);
}

/// NVML looks for cards when opened, and cannot be opened anew before a hanging call has returned.
#[tokio::test]
async fn a_card_that_came_while_a_call_hung_is_seen_when_it_has_returned() {
    let node = Node::new("late", "a30-x2").await;
    node.machine.let_happen("unplug --card 1");
    let plugin = node.plugin(None);
    let _registered = node.register().await;
    plugin.ready().await;
    let names = || async { attribute(&node, "uuid").await.len() };
    let before = names().await;
    node.machine.let_happen("fault --call nvmlDeviceGetMemoryInfo --card 0 --delay-ms 3600000");
    plugin.until("hangs", || plugin.get("/readyz").1.contains("; a call of the driver hangs about ")).await;
    node.machine.let_happen("plug --card 1");
    plugin.logged("cards that came meanwhile are not seen until they do").await;
    node.machine.let_happen("restore");
    let since = Instant::now();
    while names().await <= before || !node.tainted().await.is_empty() {
        assert!(since.elapsed() < LONG, "the card is not seen: {}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn an_added_card_and_an_updated_driver_are_seen_without_a_restart() {
    let node = Node::new("plug", "l40s-x8").await;
    node.machine.let_happen("unplug --card 3");
    let plugin = node.plugin(None);
    let _registered = node.register().await;
    plugin.ready().await;
    assert_eq!(node.devices().await.len(), 7);
    node.machine.let_happen("plug --card 3");
    type Told = [(String, String)];
    let until = async |what: &str, is: &dyn Fn(&Told) -> bool| {
        let since = Instant::now();
        loop {
            let now = attribute(&node, "driverVersion").await;
            if is(&now) {
                return;
            }
            assert!(since.elapsed() < LONG, "{what}: {now:?}; {}", plugin.log_text());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    until("eight cards", &|now| now.len() == 8).await;
    node.until_event("CardAdded").await;
    node.machine.let_happen("driver --version 575.57.08");
    until("the new driver", &|now| now.len() == 8 && now.iter().all(|(_, version)| version == "575.57.8"))
        .await;
    node.until_event("DriverChanged").await;
    plugin.until("well", || plugin.get("/readyz").0 == 200).await;
    assert_eq!(node.tainted().await, []);
}
