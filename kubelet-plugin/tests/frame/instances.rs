//! Several instances, and signals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use rustix::process::Signal;
use serde_json::json;
use tessera_harness::kubelet_stand_in::KubeletStandIn;

use crate::{node::Node, plugin::LONG};

/// As in a rolling upgrade with `maxSurge: 1`.
#[tokio::test]
async fn the_newer_takes_over_and_the_older_ends_without_a_trace() {
    let node = Node::new("upgrade", "a30-x2").await;
    let old = node.plugin(Some("uid-old"));
    let with_old = node.register().await;
    old.ready().await;
    let device = node.devices().await.remove(0);
    let claim = node.claim(&[&device]).await;
    let prepared = with_old.prepare(std::slice::from_ref(&claim)).await.unwrap();
    let generation = |slices: &[k8s_openapi::api::resource::v1::ResourceSlice]| {
        slices.iter().map(|slice| slice.metadata.resource_version.clone()).collect::<Vec<_>>()
    };
    let before = generation(&node.slices().await);

    let new = node.plugin(Some("uid-new"));
    new.ready_line("[+] sockets").await;
    let with_new = node.register().await;
    assert!(with_new.registration_socket.to_str().unwrap().contains("uid-new"));
    new.ready().await;
    old.ready().await;
    new.until("publishing", || new.get("/metrics").1.contains("tessera_publishing 1")).await;
    old.until("on standby", || old.get("/metrics").1.contains("tessera_publishing 0")).await;
    // Prepared by one instance, unprepared by the other.
    assert_eq!(with_new.prepare(std::slice::from_ref(&claim)).await.unwrap(), prepared);
    with_new.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert_eq!(old.terminate().await.code(), Some(0));
    assert!(node.sockets().iter().all(|socket| socket.contains("uid-new")), "{:?}", node.sockets());
    assert_eq!(generation(&node.slices().await), before, "nothing had to be written");
    assert_eq!(new.get("/readyz").0, 200);
    assert_eq!(new.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn without_pod_uid_the_second_waits_and_says_so() {
    let node = Node::new("plain", "t4").await;
    let first = node.plugin(None);
    node.register().await;
    first.ready().await;
    let second = node.plugin(None);
    second.logged("another process already serves").await;
    second.logged("metrics and probes").await;
    assert_eq!(second.get("/readyz").0, 503);
    assert_eq!(first.terminate().await.code(), Some(0));
    second.ready_line("[+] sockets").await;
    node.register().await;
    second.ready().await;
    assert_eq!(second.terminate().await.code(), Some(0));
}

/// The devices used by kube-scheduler: those of the newest generation, once all its slices are there.
fn complete(slices: &BTreeMap<String, ResourceSlice>) -> Option<Vec<String>> {
    let newest = slices.values().map(|slice| slice.spec.pool.generation).max()?;
    let newest: Vec<&ResourceSlice> =
        slices.values().filter(|slice| slice.spec.pool.generation == newest).collect();
    let count = i64::try_from(newest.len()).unwrap();
    newest.iter().all(|slice| slice.spec.pool.resource_slice_count == count).then(|| {
        let devices = newest.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.map(|device| device.name.clone()).collect()
    })
}

/// The last release tried partitions before whole cards: the same devices are in slices of other names.
#[tokio::test]
async fn slices_of_the_last_release_give_way_and_no_device_is_there_twice() {
    let node = Node::new("renamed", "hgx-h100-80gb").await;
    node.pool("all", json!({})).await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    let published = node.devices().await;
    let held = published.iter().find(|name| name.contains("-mig-1g10gb-")).unwrap();
    let claim = node.claim(&[held]).await;
    registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    plugin.terminate().await;

    let api: Api<ResourceSlice> = Api::all(node.client.clone());
    let of_last_release =
        |name: &str| name.replace("1-cards", "2-cards").replace("2-partitions", "1-partitions");
    for mut slice in node.slices().await {
        let name = slice.metadata.name.take().unwrap();
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        slice.metadata = ObjectMeta {
            name: Some(of_last_release(&name)),
            annotations: slice.metadata.annotations.take(),
            owner_references: slice.metadata.owner_references.take(),
            ..ObjectMeta::default()
        };
        slice.spec.pool.generation = 5;
        api.create(&PostParams::default(), &slice).await.unwrap();
    }
    let of_node = format!("spec.nodeName={}", node.name);
    let list = api.list(&ListParams::default().fields(&of_node)).await.unwrap();
    let version = list.metadata.resource_version.clone().unwrap();
    let named = |slice: ResourceSlice| (slice.metadata.name.clone().unwrap(), slice);
    let mut slices: BTreeMap<String, ResourceSlice> = list.items.into_iter().map(named).collect();
    let wanted: BTreeSet<String> = published.iter().cloned().collect();
    assert_eq!(complete(&slices).unwrap().len(), wanted.len());

    let plugin = node.plugin(Some("uid-b"));
    let _registered = node.register().await;
    let watch = WatchParams::default().fields(&of_node).timeout(60);
    let mut events = std::pin::pin!(api.watch(&watch, &version).await.unwrap());
    while slices.values().any(|slice| slice.spec.pool.generation == 5)
        || complete(&slices).is_none_or(|devices| devices.len() != wanted.len())
    {
        match events.try_next().await.unwrap().expect("the slices have the new names within the time") {
            WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                slices.extend([named(slice)]);
            }
            WatchEvent::Deleted(slice) => {
                slices.remove(&slice.metadata.name.unwrap());
            }
            event => panic!("{event:?}"),
        }
        assert!(!slices.is_empty(), "there is always something published");
        // Until the last slice of the new names is there, kube-scheduler waits; then each device is listed once.
        let Some(devices) = complete(&slices) else { continue };
        assert_eq!(devices.len(), wanted.len(), "{:?}", slices.keys());
        assert_eq!(devices.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
    assert!(
        slices.keys().all(|name| *name != of_last_release(name) || name.contains("0-counters")),
        "{:?}",
        slices.keys()
    );
    plugin.ready().await;
    assert_eq!(node.devices().await, published, "whole cards come first again");
    assert_eq!(node.tainted().await, [], "what a claim holds is offered as before");
    plugin.terminate().await;
}

#[tokio::test]
async fn signals_end_it_at_any_time() {
    let node = Node::new("signals", "t4").await;
    for wait in [0, 1, 5, 20, 80] {
        let plugin = node.plugin(Some("uid"));
        plugin.logged("kubelet plugin starting").await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let code = plugin.terminate().await.code();
        assert_eq!(code, Some(0), "after {wait} ms");
        assert!(node.sockets().is_empty(), "after {wait} ms: {:?}", node.sockets());
    }
    let mut plugin = node.plugin(Some("uid"));
    KubeletStandIn::new(&node.kubelet_directory()).register(crate::node::DRIVER, LONG).await.unwrap();
    plugin.signal(Signal::INT);
    assert_eq!(plugin.ended().await.code(), Some(0));
}

/// Hanging work is waited for, until a second signal.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let node = Node::new("second", "t4").await;
    let mut plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let device = node.devices().await.remove(0);
    let claim = node.claim(&[&device]).await;
    node.machine.let_happen("fault --call nvmlDeviceGetUUID --delay-ms 3600000");
    let call = tokio::spawn(async move { registered.prepare(std::slice::from_ref(&claim)).await });
    plugin
        .until("preparing", || {
            plugin.get("/metrics").1.contains("grpc_calls_in_flight{method=\"NodePrepareResources\"} 1")
        })
        .await;
    plugin.signal(Signal::TERM);
    plugin.until("the sockets are gone", || node.sockets().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!call.is_finished(), "a running call is waited for");
    plugin.signal(Signal::TERM);
    let since = Instant::now();
    assert_eq!(plugin.ended().await.code(), Some(0));
    // After a single signal the plugin would wait ten seconds for running work.
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    assert!(call.await.unwrap().is_err());
}
