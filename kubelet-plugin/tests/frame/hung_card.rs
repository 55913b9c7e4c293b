//! A card whose driver calls don't return.

use std::time::{Duration, Instant};

use tessera_proto::dra_health::v1::HealthStatus;

use crate::{node::Node, plugin::LONG};

async fn until_tainted(node: &Node, expected: &[(&str, &str)], mut meanwhile: impl FnMut()) {
    let since = Instant::now();
    loop {
        let tainted = node.tainted().await;
        if tainted
            .iter()
            .map(|(device, reason)| (device.as_str(), reason.as_str()))
            .eq(expected.iter().copied())
        {
            return;
        }
        assert!(since.elapsed() < LONG, "{tainted:?}, not {expected:?}");
        meanwhile();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_card_that_hangs_is_tainted_and_told_and_hides_no_other() {
    let node = Node::new("hung", "l40s-x8").await;
    let plugin = node.plugin(Some("uid-a"));
    let registered = node.register().await;
    plugin.ready().await;
    plugin.ready_line("[+] cards read: last complete look ").await;
    let devices = node.devices().await;
    let (hung, broken, other) = (devices[0].as_str(), devices[3].as_str(), devices[5].as_str());
    let mut health = registered.watch_health().await.unwrap();
    node.machine.let_happen("fault --call nvmlDeviceGetMemoryInfo --card 0 --delay-ms 3600000");
    let xid = || node.machine.let_happen("xid --card 3 48");
    let reasons = [(hung, "not-answering"), (broken, "xid-48"), (broken, "recovery-action")];
    until_tainted(&node, &reasons, xid).await;

    // The last of the slices may still be on its way.
    plugin.ready().await;
    let (_, text) = plugin.get("/readyz");
    assert!(text.contains("; a call of the driver hangs about 0000:"), "{text}");
    plugin.until("told", || plugin.get("/metrics").1.contains("tessera_cards_not_answering 1")).await;
    assert!(plugin.get("/metrics").1.contains("tessera_last_complete_look_timestamp_seconds 1"));
    let told = plugin.log_text().matches("the card gets no new work; it may need a reset").count();
    assert_eq!(told, 1, "once");
    node.until_event("CardUnhealthy").await;
    let is_silent = |of: &str, devices: &[tessera_proto::dra_health::v1alpha1::DeviceHealth]| {
        devices.iter().any(|device| {
            device.device.as_ref().is_some_and(|device| device.device_name == of)
                && device.health == i32::from(HealthStatus::Unhealthy)
                && device.message.contains("does not answer")
        })
    };
    let heard = async { while !is_silent(hung, &health.message().await.unwrap().unwrap().devices) {} };
    tokio::time::timeout(LONG, heard).await.expect("the kubelet is not told");

    // Claims of other cards are served.
    let claim = node.claim(&[other]).await;
    let answers = registered.prepare(std::slice::from_ref(&claim)).await.unwrap();
    answers[&claim.uid].as_ref().unwrap();
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();

    // The dump lists hanging calls.
    plugin.signal(rustix::process::Signal::USR2);
    plugin.logged("dump: 0 claims at work").await;
    for line in ["dump: discovery runs for ", " connections of the kubelet"] {
        assert!(plugin.log_text().contains(line), "{line}: {}", plugin.log_text());
    }

    node.machine.let_happen("restore --card 0");
    until_tainted(&node, &reasons[1..], || {}).await;
    node.until_event("CardHealthy").await;
    plugin.until("well", || plugin.get("/metrics").1.contains("tessera_cards_not_answering 0")).await;
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
