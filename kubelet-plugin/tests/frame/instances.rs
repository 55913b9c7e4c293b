//! Several instances, and signals.

use std::time::{Duration, Instant};

use rustix::process::Signal;
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
    // After a single signal it would wait ten seconds for running work.
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    assert!(call.await.unwrap().is_err());
}
