//! Cards allocated by the controller, as published for kube-scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceName, NodeReport, PciBusId, managed};
use tessera_harness::{Cluster, ClusterOptions};
use tokio::sync::OnceCell;

use crate::gpu_pools::report;
use crate::node::Node;
use crate::plugin::{LONG, Plugin};

const NOT_OFFERED: &str = "gpu.tessera.dev/not-offered";

/// Starts an instance with this handover time, in seconds, for the taint of cards managed no longer.
fn plugin(node: &Node, handover: u64) -> Plugin {
    let mut arguments = node.arguments();
    arguments.push(format!("--managed-handover={handover}"));
    Plugin::start(node.directory(), &arguments)
}

/// The published devices with the keys of their taints, and the times of these.
type Taints = BTreeMap<String, BTreeMap<String, String>>;

async fn taints(node: &Node) -> Taints {
    let devices = node.slices().await.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let taints = |device: Device| {
        let taints = device.taints.unwrap_or_default().into_iter().map(|taint| {
            assert_eq!(taint.effect, "NoSchedule");
            (taint.key, taint.time_added.expect("the API server's time").0.to_string())
        });
        (device.name, taints.collect())
    };
    devices.map(taints).collect()
}

/// Waits until the taints are as wanted.
async fn until(node: &Node, plugin: &Plugin, what: &str, wanted: impl Fn(&Taints) -> bool) -> Taints {
    let since = Instant::now();
    loop {
        let now = taints(node).await;
        if !now.is_empty() && wanted(&now) {
            return now;
        }
        assert!(since.elapsed() < LONG, "never {what}: {now:?}: {}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn keys<'a>(taints: &'a Taints, device: &str) -> Vec<&'a str> {
    taints.get(device).into_iter().flat_map(|taints| taints.keys().map(String::as_str)).collect()
}

fn all(taints: &Taints, expected: &[&str]) -> bool {
    taints.keys().all(|device| keys(taints, device) == expected)
}

fn kinds(taints: &Taints) -> BTreeSet<&'static str> {
    taints.keys().map(|device| device.parse::<DeviceName>().unwrap().device_type().as_str()).collect()
}

fn is_shared(device: &str) -> bool {
    device.ends_with("-mps") || device.ends_with("-ts")
}

#[tokio::test]
async fn a_pool_becomes_managed_and_native_again_while_claims_hold_devices() {
    let node = Node::new("managed", "hgx-h100-80gb").await;
    let sharing = json!({"mps": {"cards": true, "partitions": ["3g.40gb"]}, "timeSlicing": {"replicas": 4}});
    let offer = json!({"sharing": sharing});
    node.pool("p", json!({"offer": offer})).await;
    let plugin = plugin(&node, 1);
    let registered = node.register().await;
    plugin.ready().await;
    let native = until(&node, &plugin, "without taints", |now| all(now, &[])).await;
    assert_eq!(kinds(&native), BTreeSet::from(["gpu", "mig", "mps", "timeslice"]));

    let name = |kind: &str, other: &str| {
        let is_wanted =
            |device: &&String| device.parse::<DeviceName>().unwrap().device_type().as_str() == kind;
        let card = |device: &str| device.parse::<DeviceName>().unwrap().card();
        let mut devices = native.keys().filter(is_wanted);
        devices.find(|device| other.is_empty() || card(device) != card(other)).unwrap().clone()
    };
    let whole = name("gpu", "");
    let partition = name("mig", &whole);
    let mut claims = Vec::new();
    for device in [&whole, &partition] {
        let claim = node.claim(&[device]).await;
        registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
        claims.push(claim);
    }

    node.pool("p", json!({"offer": offer, "allocation": "Managed"})).await;
    let managed = until(&node, &plugin, "managed", |now| all(now, &[managed::TAINT_KEY])).await;
    assert_eq!(managed.keys().collect::<Vec<_>>(), native.keys().collect::<Vec<_>>(), "the same devices");
    let told = report(&node, |told| told.cards.values().all(|card| card.allocation == Allocation::Managed));
    assert_eq!(told.await.pools, BTreeMap::new());

    // Whatever else changes, the times stay: by them is told since when kube-scheduler is kept away.
    let fewer = json!({"wholeCards": false, "partitioning": {"profiles": ["1g.10gb"]}, "sharing": sharing});
    node.pool("p", json!({"offer": fewer, "allocation": "Managed"})).await;
    let stays = |device: &&String| {
        **device == whole
            || device.contains("-mig-1g10gb-") && !device.contains("-me-")
            || !device.contains("-mig-") && is_shared(device)
    };
    let left: Vec<&String> = native.keys().filter(stays).collect();
    // Held and no longer offered.
    let changed = until(&node, &plugin, "fewer", |now| {
        keys(now, &whole) == [managed::TAINT_KEY, NOT_OFFERED] && now.keys().collect::<Vec<_>>() == left
    });
    let changed = changed.await;
    for (device, taints) in &changed {
        assert_eq!(taints[managed::TAINT_KEY], managed[device][managed::TAINT_KEY], "{device}");
    }
    plugin.terminate().await;
    drop(registered);
    let plugin = self::plugin(&node, 1);
    let registered = node.register().await;
    plugin.ready().await;
    plugin.ready_line("[+] ResourceSlices published").await;
    assert_eq!(taints(&node).await, changed, "a restart changes nothing");

    node.pool("p", json!({"offer": fewer, "allocation": "Steered"})).await;
    let steered = until(&node, &plugin, "native", |now| {
        now.iter().all(|(device, taints)| taints.is_empty() || *device == whole)
    });
    assert_eq!(keys(&steered.await, &whole), [NOT_OFFERED]);
    node.pool("p", json!({"offer": offer})).await;
    until(&node, &plugin, "as before", |now| *now == native).await;
    for claim in claims {
        registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    }
    assert_eq!(taints(&node).await, native);
    plugin.terminate().await;
}

fn is_steered(told: &NodeReport) -> bool {
    told.cards.values().all(|card| card.allocation == Allocation::Steered)
}

/// The controller learns at once that the cards are no longer its own, kube-scheduler only when no write can be in flight.
#[tokio::test]
async fn a_card_that_is_managed_no_longer_keeps_its_taint_for_the_handover_time() {
    const HANDOVER: Duration = Duration::from_secs(10);
    let node = Node::new("handover", "a30-x2").await;
    node.pool("p", json!({"allocation": "Managed"})).await;
    let plugin = plugin(&node, HANDOVER.as_secs());
    let _registered = node.register().await;
    plugin.ready().await;
    let managed = until(&node, &plugin, "managed", |now| all(now, &[managed::TAINT_KEY])).await;

    let changed = Instant::now();
    node.pool("p", json!({"allocation": "Steered"})).await;
    report(&node, is_steered).await;
    assert_eq!(taints(&node).await, managed, "the same taints, {:?} after the change", changed.elapsed());
    let steered = until(&node, &plugin, "steered", |now| all(now, &[])).await;
    assert!(changed.elapsed() >= HANDOVER, "{:?}", changed.elapsed());
    assert_eq!(steered.keys().collect::<Vec<_>>(), managed.keys().collect::<Vec<_>>());

    // A process started in between does not know the time of the change, and waits the whole time.
    node.pool("p", json!({"allocation": "Managed"})).await;
    until(&node, &plugin, "managed again", |now| all(now, &[managed::TAINT_KEY])).await;
    node.pool("p", json!({"allocation": "Steered"})).await;
    report(&node, is_steered).await;
    plugin.kill();
    let restarted = Instant::now();
    let plugin = self::plugin(&node, HANDOVER.as_secs());
    until(&node, &plugin, "steered again", |now| all(now, &[])).await;
    assert!(restarted.elapsed() >= HANDOVER, "{:?}", restarted.elapsed());
    report(&node, is_steered).await;
    plugin.terminate().await;
}

async fn without_taints() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    crate::node::cluster().await;
    let start = || {
        let mut options = ClusterOptions::scheduler_tier(0);
        options.extra = options.kubernetes.without(&["DRADeviceTaints"]);
        Cluster::start(options)
    };
    CLUSTER.get_or_try_init(start).await.unwrap()
}

/// Without the taint kube-scheduler would allocate the card's devices, too.
#[tokio::test]
async fn a_server_that_keeps_no_taints_never_has_a_managed_card() {
    let node = Node::of(without_taints().await, "no-taints", "a30-x2").await;
    let card: PciBusId = node.machine.cards()[0]["pci"].as_str().unwrap().parse().unwrap();
    let expression = format!(r#"device.attributes["resource.kubernetes.io"].pciBusID == "{card}""#);
    node.pool_in(without_taints().await, "m", json!({"cards": expression, "allocation": "Managed"})).await;
    let slices: Api<ResourceSlice> = Api::all(node.client.clone());
    let of_node = WatchParams::default().fields(&format!("spec.nodeName={}", node.name));
    let seen = slices.watch(&of_node, "0").await.unwrap().boxed();

    let plugin = plugin(&node, 1);
    let _registered = node.register().await;
    plugin.ready().await;
    let others = until(&node, &plugin, "the other card", |now| !now.is_empty()).await;
    assert!(all(&others, &[]), "{others:?}");
    plugin.logged("allocation Managed needs the feature gate DRADeviceTaints").await;
    plugin.ready_line("[+] ResourceSlices published: feature gate DRADeviceTaints is off").await;
    let pool = node.pool_name("m");
    let told = report(&node, |told| told.pools.contains_key(&pool)).await;
    assert!(told.pools[&pool].error.as_ref().unwrap().contains("DRADeviceTaints"), "{told:?}");

    // Not even for a moment.
    node.pool_in(
        without_taints().await,
        "m",
        json!({"cards": expression, "allocation": "Managed", "priority": 1}),
    )
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut published: BTreeSet<String> = BTreeSet::new();
    let seen = seen.take_until(tokio::time::sleep(Duration::from_secs(1)));
    let events: Vec<WatchEvent<ResourceSlice>> = seen.try_collect().await.unwrap();
    for event in events {
        let (WatchEvent::Added(slice) | WatchEvent::Modified(slice)) = event else { continue };
        published.extend(slice.spec.devices.into_iter().flatten().map(|device| device.name));
    }
    assert_eq!(published, others.keys().cloned().collect());

    // Live, too: devices native before go.
    node.pool_in(without_taints().await, "m", json!({"cards": expression})).await;
    until(&node, &plugin, "both", |now| now.len() == 2 * others.len()).await;
    report(&node, |told| told.pools.is_empty()).await;
    node.pool_in(without_taints().await, "m", json!({"cards": expression, "allocation": "Managed"})).await;
    until(&node, &plugin, "one again", |now| *now == others).await;
    report(&node, |told| told.pools.contains_key(&pool)).await;
    plugin.terminate().await;
}
