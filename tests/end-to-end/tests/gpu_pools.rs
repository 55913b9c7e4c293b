//! The pools of `examples/gpu-pools/`, on three nodes. The control plane and the plugin on each node are real; cards are
//! emulated.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests have no #[test]")]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::ListParams;
use tessera_harness::installation::{Installation, InstallationOptions};
use tessera_harness::node_stand_in::{Machine, NodeStandIn};
use tessera_harness::{Cluster, ClusterOptions, workspace};
use tokio::time::{Instant, sleep};

/// Several times what the slowest step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const POOLS: [&str; 3] =
    ["examples/gpu-pools/training.yaml", "examples/gpu-pools/inference.yaml", "examples/gpu-pools/dev.yaml"];

/// How many devices of each type the node publishes, by pool.
async fn published(cluster: &Cluster, node: &str) -> BTreeMap<(String, String), usize> {
    let slices: Api<ResourceSlice> = Api::all(cluster.client().await.unwrap());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let slices = slices.list(&of_node).await.unwrap().items;
    let mut published = BTreeMap::new();
    for device in slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()) {
        let attributes = device.attributes.unwrap_or_default();
        let text =
            |name: &str| attributes.get(name).and_then(|value| value.string.clone()).unwrap_or_default();
        *published.entry((text("type"), text("gpuPool"))).or_default() += 1;
    }
    published
}

async fn until(cluster: &Cluster, node: &str, expected: &[(&str, &str, usize)]) {
    let expected: BTreeMap<(String, String), usize> =
        expected.iter().map(|(kind, pool, count)| ((kind.to_string(), pool.to_string()), *count)).collect();
    let end = Instant::now() + PATIENCE;
    loop {
        let now = published(cluster, node).await;
        if now == expected {
            return;
        }
        assert!(Instant::now() < end, "{node}: {now:?} instead of {expected:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn training_inference_and_dev() {
    let options = ClusterOptions { helm: true, ..ClusterOptions::scheduler_tier(3) };
    let cluster = Cluster::start(options).await.unwrap();
    let nodes = ["node-a", "node-b", "node-c"];
    cluster.kubectl(&["label", "node", "node-a", "example.com/pool=training"]).await.unwrap();
    cluster.kubectl(&["label", "node", "node-b", "example.com/pool=inference"]).await.unwrap();
    // The chart brings the kind; pools come later.
    let tessera = Installation::install(&cluster, &InstallationOptions::default()).await.unwrap();
    let mut stand_ins = Vec::new();
    for node in nodes {
        let machine = Machine { hardware: "hgx-h100-80gb".to_owned(), cards: Some(2), mig_mode: false };
        stand_ins.push(NodeStandIn::start(&cluster, &tessera, node, &machine).await.unwrap());
    }
    let apply = async |file: &str| {
        cluster.apply(&fs::read_to_string(workspace::root().join(file)).unwrap()).await.unwrap();
    };
    for file in POOLS {
        apply(file).await;
    }
    until(&cluster, "node-a", &[("gpu", "training", 2)]).await;
    // Seven placements of the one size and two of the other, on each card.
    until(&cluster, "node-b", &[("mig", "inference", 18)]).await;
    until(&cluster, "node-c", &[("gpu", "dev", 2), ("timeslice", "dev", 2)]).await;

    apply("examples/gpu-quotas/teams.yaml").await;
    let quotas = cluster.kubectl(&["get", "gpuquotas"]).await.unwrap();
    let vision = quotas.lines().find(|line| line.starts_with("vision ")).unwrap();
    assert_eq!(
        vision.split_whitespace().collect::<Vec<_>>()[..5],
        ["vision", "research", "cards", "16", "24"]
    );

    // A node moves to another pool, and a pool goes.
    cluster.kubectl(&["label", "node", "node-c", "example.com/pool=training"]).await.unwrap();
    until(&cluster, "node-c", &[("gpu", "training", 2)]).await;
    cluster.kubectl(&["delete", "gpupool", "training"]).await.unwrap();
    until(&cluster, "node-a", &[("gpu", "dev", 2), ("timeslice", "dev", 2)]).await;
    // Pools outlive the chart.
    cluster.helm(&["uninstall", "tessera", "--no-hooks", "--namespace", "tessera-system"]).await.unwrap();
    let left = cluster.kubectl(&["get", "gpupools", "--output=name"]).await.unwrap();
    assert_eq!(left.lines().count(), 2, "{left}");
    until(&cluster, "node-b", &[("mig", "inference", 18)]).await;
    for node in &stand_ins {
        node.stop().await.unwrap();
    }
    cluster.shutdown().await.unwrap();
}
