//! The whole life of an instance.

use std::{fs, time::Instant};

use serde_json::Value;

use crate::{
    node::{DRIVER, Node},
    plugin::LONG,
};

#[tokio::test]
async fn publishes_registers_prepares_unprepares_and_ends() {
    let node = Node::new("whole", "hgx-h100-80gb").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    assert_eq!(registered.info.name, DRIVER);
    let published = node.devices().await;
    assert_eq!(published.len(), 8 * 18 + 8, "each card in partitions, and whole");
    let devices: Vec<_> = published.iter().filter(|name| !name.contains("-mig-")).cloned().collect();
    assert_eq!(devices.len(), 8);

    let claim = node.claim(&[&devices[2], &devices[5]]).await;
    let answers = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    let prepared = answers[&claim.uid].as_ref().unwrap();
    let names: Vec<&String> = prepared.iter().map(|device| &device.device_name).collect();
    assert_eq!(names, [&devices[2], &devices[5]]);
    assert_eq!(prepared[0].request_names, ["gpus"]);
    assert_eq!(prepared[0].pool_name, format!("{DRIVER}/{}", node.name));
    let spec = node.cdi_directory().join(&node.specs()[0]);
    let spec: Value = serde_json::from_slice(&fs::read(spec).unwrap()).unwrap();
    let kind = spec["kind"].as_str().unwrap();
    let known: Vec<String> = spec["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| format!("{kind}={}", device["name"].as_str().unwrap()))
        .collect();
    let (metadata, of_devices): (Vec<&String>, Vec<_>) =
        prepared.iter().flat_map(|device| &device.cdi_device_ids).partition(|id| id.contains("/metadata="));
    assert!(of_devices.iter().all(|id| known.contains(id)), "{spec}");
    assert_eq!(metadata, [&format!("{DRIVER}/metadata={}_gpus", claim.uid)]);

    for line in [
        "tessera_prepared_devices 2",
        "tessera_published_devices 152",
        "tessera_registered 1",
        "tessera_claim_duration_seconds_count{operation=\"prepare\",outcome=\"success\"} 1",
        "tessera_grpc_call_duration_seconds_count{method=\"NodePrepareResources\",outcome=\"success\"} 1",
    ] {
        plugin.until(line, || plugin.get("/metrics").1.contains(line)).await;
    }

    let answers = registered.unprepare(std::slice::from_ref(&claim)).await.unwrap();
    answers[&claim.uid].as_ref().unwrap();
    assert!(node.specs().is_empty());
    let log = plugin.log();
    let of_claim = log.iter().find(|line| line["message"] == "prepared").expect("a line about the claim");
    assert_eq!(of_claim["span"]["uid"], claim.uid.as_str());
    assert!(of_claim["devices"].to_string().contains(&devices[2]), "{of_claim}");

    let searches = log.iter().filter(|line| line["message"] == "looked for the driver's files").count();
    assert_eq!(searches, 1, "the driver's files are looked for once");

    let since = Instant::now();
    assert_eq!(plugin.terminate().await.code(), Some(0));
    // Less than the wait for work on claims.
    assert!(since.elapsed().as_secs() < 9);
    assert!(node.sockets().is_empty(), "{:?}", node.sockets());
    assert_eq!(node.devices().await, published, "the slices stay");
}

#[tokio::test]
async fn a_crash_loses_nothing_and_the_next_instance_clears_up() {
    let node = Node::new("crash", "t4").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    let device = node.devices().await.remove(0);
    let claim = node.claim(&[&device]).await;
    let before = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    plugin.kill();
    assert_eq!(node.sockets().len(), 2);

    let plugin = node.plugin(Some("uid-b"));
    plugin.ready_line("[+] sockets").await;
    assert!(node.sockets().iter().all(|socket| socket.contains("uid-b")), "{:?}", node.sockets());
    let registered = node.register().await;
    plugin.ready().await;
    let after = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    assert_eq!(after, before);
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert!(node.specs().is_empty());
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn health_of_every_published_device_is_streamed() {
    let node = Node::new("health", "l40s-x8").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let mut stream = registered.watch_health().await.unwrap();
    let devices = stream.message().await.unwrap().unwrap().devices;
    let mut healthy: Vec<String> =
        devices.iter().filter(|d| d.health == 1).map(|d| d.device.clone().unwrap().device_name).collect();
    let mut published = node.devices().await;
    healthy.sort();
    published.sort();
    assert_eq!(healthy, published);
    // The stream ends with the instance, and does not delay its end.
    assert_eq!(plugin.terminate().await.code(), Some(0));
    assert!(stream.message().await.map_or(true, |message| message.is_none()));
}

/// Pods are bound the moment slices appear, and a kubelet without the driver's registration fails them for a minute.
#[tokio::test]
async fn a_new_nodes_slices_wait_for_the_kubelet_but_not_for_ever() {
    let node = Node::new("unregistered", "a30-x2").await;
    let since = Instant::now();
    let first = node.plugin(Some("uid-a"));
    first.ready_line("[+] hardware").await;
    first.ready_line("[+] sockets").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // The plugin waits three seconds.
    assert!(
        node.devices().await.is_empty() || since.elapsed().as_secs() >= 3,
        "published before the kubelet knows the plugin"
    );
    node.register().await;
    first.ready().await;
    assert_eq!(node.devices().await.len(), 2);
    first.terminate().await;

    let other = Node::new("no-kubelet", "a30-x2").await;
    let alone = other.plugin(Some("uid-b"));
    alone.ready_line("[+] ResourceSlices published").await;
    assert_eq!(other.devices().await.len(), 2);
    alone.terminate().await;
}

#[tokio::test]
async fn an_xid_is_remembered_until_the_card_was_reset() {
    let node = Node::new("xid", "l40s-x8").await;
    let plugin = node.plugin(Some("uid-a"));
    node.register().await;
    plugin.ready().await;
    let since = Instant::now();
    while node.tainted().await.is_empty() {
        assert!(since.elapsed() < LONG, "{}", plugin.log_text());
        // Listening to events starts a little after the cards were read.
        node.machine.let_happen("xid --card 3 48");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let before = node.slices().await;
    let broken = node.devices().await[3].clone();
    let mut found = node.tainted().await;
    found.sort();
    assert_eq!(found, ["recovery-action", "xid-48"].map(|reason| (broken.clone(), reason.to_owned())));
    plugin.kill();

    let plugin = node.plugin(Some("uid-b"));
    node.register().await;
    plugin.ready().await;
    assert_eq!(node.slices().await, before, "it was never untainted");
    plugin.kill();

    // Nobody observed the reset, but the withdrawn recommendation shows it.
    node.machine.let_happen("reset --card 3");
    let plugin = node.plugin(Some("uid-c"));
    node.register().await;
    plugin.ready().await;
    tessera_fakes::poll::until_async("untainted", async || node.tainted().await.is_empty()).await;
    plugin.kill();
    let plugin = node.plugin(Some("uid-d"));
    node.register().await;
    plugin.ready().await;
    assert_eq!(node.tainted().await, [], "and it is forgotten for good");
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
