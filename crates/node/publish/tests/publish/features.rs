//! API servers that do not keep all of a slice.

use std::time::Duration;

use axum::http::Method;
use k8s_openapi::api::resource::v1::DeviceTaint;
use tessera_harness::{Cluster, ClusterOptions};
use tessera_kube_util::client;

use crate::{
    proxy::{Act, Proxy},
    support::{TestNode, administrator, administrator_of, cards, change_devices, marks},
};

/// What a server without DRAPartitionableDevices does.
fn drop_counters(object: &mut serde_json::Value) {
    let spec = object["spec"].as_object_mut().expect("a spec");
    spec.remove("sharedCounters");
    for device in spec.get_mut("devices").and_then(|devices| devices.as_array_mut()).into_iter().flatten() {
        device.as_object_mut().expect("a device").remove("consumesCounters");
    }
}

/// What an admission policy may do.
fn change_marks(object: &mut serde_json::Value) {
    for device in object["spec"]["devices"].as_array_mut().into_iter().flatten() {
        device["attributes"]["mark"]["string"] = "theirs".into();
    }
}

#[tokio::test]
async fn without_counters_whole_cards_are_published_and_counters_come_when_they_can() {
    let node = TestNode::new("counters").await;
    let proxy = Proxy::new().await;
    proxy.next(Method::POST, usize::MAX, Act::Strip(drop_counters));
    proxy.next(Method::PUT, usize::MAX, Act::Strip(drop_counters));
    let mut pool = cards(2, "a");
    change_devices(&mut pool, |devices| {
        let mut partition = devices[0].clone();
        partition.name = "gpu-00-00-mig-1g10gb-0".to_owned();
        partition.attributes.as_mut().expect("attributes").get_mut("type").expect("type").string =
            Some("mig".to_owned());
        devices.push(partition);
    });

    let publisher = node.start(proxy.client(), Some(pool), "x");
    let status = publisher.in_sync().await;
    assert_eq!((status.slices, status.devices), (1, 2), "no counters, no partition");
    assert_eq!(status.missing_gates, ["DRAPartitionableDevices"].into());
    let error = status.last_error.expect("an error");
    assert!(error.contains("feature gate DRAPartitionableDevices is off"), "{error}");
    let slices = node.slices().await;
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].spec.pool.resource_slice_count, 1);

    // The server is asked now and then, without writing.
    let writes = status.writes;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(publisher.status.borrow().writes, writes);
    proxy.behave();
    let status = publisher.until("all", |status| status.in_sync && status.devices == 3).await;
    assert_eq!((status.slices, status.last_error), (2, None));
    assert!(status.missing_gates.is_empty());
}

#[tokio::test]
async fn a_real_server_with_the_gates_switched_off_gets_whole_cards_and_is_not_asked_twice() {
    drop(administrator().await);
    let gates = ["DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"];
    let mut options = ClusterOptions::scheduler_tier(0);
    options.extra = options.kubernetes.without(&gates);
    let cluster = Cluster::start(options).await.expect("a cluster");
    let config = administrator_of(&cluster).await;
    let node = TestNode::in_cluster(config.clone(), "gates").await;
    let connect = || client::connect(config.clone()).expect("a client");

    let mut pool = cards(3, "a");
    change_devices(&mut pool, |devices| {
        devices[1].taints = Some(vec![DeviceTaint {
            key: "gpu.tessera.dev/lost".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..DeviceTaint::default()
        }]);
        devices[2].allow_multiple_allocations = Some(true);
    });
    let first = node.start(connect(), Some(pool.clone()), "first");
    let status = first.until("published", |status| status.in_sync && status.devices == 1).await;
    assert_eq!(status.missing_gates, gates.into());
    let slices = node.slices().await;
    assert_eq!((slices.len(), marks(&slices).len()), (1, 1));
    first.stop().await;

    // The next start finds out without disturbing what is published.
    let second = node.start(connect(), Some(pool), "second");
    let status = second.in_sync().await;
    assert_eq!((status.writes, status.devices), (0, 1));
    assert_eq!(node.slices().await, slices);
    second.stop().await;
    cluster.shutdown().await.expect("ended");
}

#[tokio::test]
async fn what_a_policy_changes_on_the_way_is_said_and_left() {
    let node = TestNode::new("altered").await;
    let proxy = Proxy::new().await;
    proxy.next(Method::POST, usize::MAX, Act::Strip(change_marks));
    proxy.next(Method::PUT, usize::MAX, Act::Strip(change_marks));
    let publisher = node.publisher_through(proxy.client(), Some(cards(1, "a")));
    let status = publisher.in_sync().await;
    let error = status.last_error.expect("an error");
    assert!(
        error.contains("spec.devices[0].attributes.mark.string") && error.contains("admission policy"),
        "{error}"
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(publisher.status.borrow().writes, 2);
    assert_eq!(marks(&node.slices().await), ["theirs"]);
    // It is still put back when it goes, and what is new is tried again.
    node.wipe().await;
    publisher.until("repaired", |status| status.in_sync && status.repairs > 0).await;
    proxy.behave();
    publisher.offer(cards(1, "b"));
    let status = publisher.until("as sent", |status| status.in_sync && status.last_error.is_none()).await;
    assert_eq!(status.devices, 1);
    assert_eq!(marks(&node.slices().await), ["b"]);
}
