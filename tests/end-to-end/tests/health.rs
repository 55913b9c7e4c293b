//! A card with a fault: what the chart's values say of it reaches pods, by Kubernetes' own controllers. The control plane and
//! the plugin are real; cards and kubelet are emulated.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests have no #[test]")]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::ListParams;
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::node_stand_in::{Machine, NodeStandIn, PodsOfNode, PreparedPod};
use tessera_harness::scene::each_right_is_used;
use tessera_harness::{Cluster, ClusterOptions};
use tokio::time::{Instant, sleep};

/// Several times what the slowest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const NODE: &str = "node-a";

/// A claim of one card, and a pod with it.
fn pod(name: &str, class: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: default}}
spec:
  devices:
    requests: [{{name: card, exactly: {{deviceClassName: {class}}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: example.com/none
    resources: {{claims: [{{name: card}}]}}
  resourceClaims: [{{name: card, resourceClaimName: {name}}}]
"
    )
}

/// The test's own pods: the chart's are on the node, too.
fn running(served: &PodsOfNode) -> Vec<PreparedPod> {
    served.prepared().into_iter().filter(|pod| pod.namespace == "default").collect()
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "{what} did not happen");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Devices with a taint, each with the taint's value and effect.
async fn tainted(slices: &Api<ResourceSlice>) -> BTreeSet<(String, String, String)> {
    let slices = slices.list(&ListParams::default()).await.unwrap().items;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let taints = devices.flat_map(|device| {
        let taint = move |taint: k8s_openapi::api::resource::v1::DeviceTaint| {
            (device.name.clone(), taint.value.unwrap_or_default(), taint.effect)
        };
        device.taints.unwrap_or_default().into_iter().map(taint)
    });
    taints.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_evicts_the_pods_of_the_faulty_card_only() {
    let options = ClusterOptions { helm: true, audit: true, ..ClusterOptions::scheduler_tier(1) };
    let cluster = Cluster::start(options).await.unwrap();
    let values = vec!["health.xids.48=NoExecute".to_owned()];
    let options = InstallationOptions { values, ..InstallationOptions::default() };
    let tessera = Installation::install(&cluster, &options).await.unwrap();
    let machine = Machine { hardware: "hgx-h100-80gb".to_owned(), cards: Some(2), mig_mode: false };
    let mut node = NodeStandIn::start(&cluster, &tessera, NODE, &machine).await.unwrap();
    let client = cluster.client().await.unwrap();
    let served = node.serve(client.clone(), |_| false);
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let root = node.machine().to_str().unwrap().to_owned();
    let emulator = |command: &str, arguments: &[&str]| {
        tessera.emulator(&[&[command, &root], arguments].concat()).unwrap();
    };

    for name in ["first", "second"] {
        cluster.apply(&pod(name, "gpu.tessera.dev")).await.unwrap();
    }
    until("both pods running", async || running(&served).len() == 2).await;
    let before = running(&served);
    let device = |pod: &str| -> String {
        let pod = before.iter().find(|prepared| prepared.name == pod).unwrap();
        pod.devices.values().flatten().next().unwrap().device_name.clone()
    };

    // A fault for which no taint is made is told, and nothing else.
    emulator("health", &["--card=1", "--hot=true"]);
    let events: Api<Event> = Api::all(client.clone());
    let told = async |kind: &str, reason: &str, part: &str| {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| {
            event.involved_object.kind.as_deref() == Some(kind)
                && event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(part))
        })
    };
    until("told of the heat", async || told("Node", "CardUnhealthy", "thermal").await).await;
    assert_eq!(tainted(&slices).await, BTreeSet::new());

    // The plugin listens to events a little after it has read the cards.
    until("the taint", async || {
        emulator("xid", &["--card=0", "48"]);
        !tainted(&slices).await.is_empty()
    })
    .await;
    until("one pod evicted", async || running(&served).len() == 1).await;
    let left = running(&served)[0].name.clone();
    let evicted = if left == "first" { "second" } else { "first" };
    let found = tainted(&slices).await;
    assert!(found.contains(&(device(evicted), "xid-48".to_owned(), "NoExecute".to_owned())), "{found:?}");
    assert!(!found.iter().any(|(name, ..)| *name == device(&left)), "{found:?}");
    for kind in ["Node", "ResourceClaim", "Pod"] {
        until(kind, async || told(kind, "CardUnhealthy", "xid-48").await).await;
    }
    until("Kubernetes says why", async || told("Pod", "DeviceTaintManagerEviction", "").await).await;

    // Nobody gets the card while it is faulty; the next pod gets it as soon as it was reset.
    cluster.apply(&pod("third", "gpu.tessera.dev")).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let third = pods.get("third").await.unwrap();
    assert_eq!(third.spec.unwrap().node_name, None);
    emulator("lose", &["--card=0"]);
    until("lost", async || tainted(&slices).await.iter().any(|(_, value, _)| value == "lost")).await;
    emulator("restore", &["--card=0"]);
    until("the third pod running", async || running(&served).iter().any(|pod| pod.name == "third")).await;
    assert_eq!(tainted(&slices).await, BTreeSet::new());
    until("told that it is well", async || told("Node", "CardHealthy", "xid-48").await).await;

    // What else a plugin does in its life, and each right of the chart is used for something of all this.
    emulator("lose", &["--card=0"]);
    until("lost again", async || tainted(&slices).await.iter().any(|(_, value, _)| value == "lost")).await;
    emulator("restore", &["--card=0"]);
    let counted = async || {
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(client.clone());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| event.reason.as_deref() == Some("CardUnhealthy") && event.series.is_some())
    };
    until("the same Event counted up", async || counted().await).await;
    emulator("fault", &["--call=nvmlDeviceCreateGpuInstanceWithPlacement", "--error=UNKNOWN"]);
    cluster.kubectl(&["delete", "pod", "third", "--now"]).await.unwrap();
    cluster.apply(&pod("fourth", "mig.gpu.tessera.dev")).await.unwrap();
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
    until("a device says that it cannot be prepared", async || {
        let claim = claims.get("fourth").await.unwrap();
        claim.status.is_some_and(|status| status.devices.is_some_and(|devices| !devices.is_empty()))
    })
    .await;
    emulator("restore", &[]);
    until("the fourth pod running", async || running(&served).iter().any(|pod| pod.name == "fourth")).await;
    cluster.kubectl(&["delete", "pod", "fourth", "--now"]).await.unwrap();
    let names = cluster.kubectl(&["get", "resourceslices", "-o", "name"]).await.unwrap();
    let first = names.lines().next().unwrap();
    cluster.kubectl(&["annotate", first, "example.com/note=hello"]).await.unwrap();
    let count = names.lines().count();
    assert!(count > 1, "a plugin that starts reads several slices at once: {names}");
    drop(served);
    node.restart().await.unwrap();
    let whole = r#"{"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "whole"},
        "spec": {"offer": {"partitioning": {"mode": "None"}}}}"#;
    cluster.apply(whole).await.unwrap();
    until("fewer slices", async || slices.list(&ListParams::default()).await.unwrap().items.len() < count)
        .await;
    // The API server asks for the last right besides, for a field of the request: `chart/device_status.rs` takes it away.
    let elsewhere = ["associated-node:patch resourceclaims/driver.resource.k8s.io"];
    each_right_is_used(&cluster, "tessera-kubelet-plugin", &elsewhere).await;

    node.stop().await.unwrap();
    cluster.shutdown().await.unwrap();
}
