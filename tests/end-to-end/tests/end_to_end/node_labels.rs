//! A label of the node selects a pool for it.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tessera_harness::Cluster;

use crate::{
    shares::{share, time_slice},
    stage::{POOL_LABEL, play},
};

/// A node with the label that the pool of notebooks selects. Other tests use the node, so it loses the label also when
/// this one fails.
struct Labelled<'a> {
    cluster: &'a Cluster,
    node: &'a str,
}

impl<'a> Labelled<'a> {
    async fn new(cluster: &'a Cluster, node: &'a str) -> Self {
        // Made first: the label may be there although kubectl failed.
        let labelled = Self { cluster, node };
        cluster.kubectl(&["label", "node", node, &format!("{POOL_LABEL}=notebooks")]).await.unwrap();
        labelled
    }
}

impl Drop for Labelled<'_> {
    fn drop(&mut self) {
        let kubectl = Command::new(self.cluster.program("kubectl").unwrap())
            .args(["label", "node", self.node, &format!("{POOL_LABEL}-")])
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !kubectl.as_ref().is_ok_and(std::process::ExitStatus::success) {
            eprintln!("the label of {} stays: {kubectl:?}", self.node);
        }
    }
}

fn count(devices: &[Value], kind: &str) -> usize {
    devices.iter().filter(|device| device["attributes"]["type"]["string"] == kind).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_of_the_node_changes_what_it_offers_and_takes_nothing_from_running_pods() {
    play("a_label_of_the_node_changes_what_it_offers_and_takes_nothing_from_running_pods", async |scene| {
        scene.template("share", &[share("share", &json!({}))]).await;
        scene.template("slice", &[time_slice("slice")]).await;
        scene.program_from_template("share", "share", &["--hold"]).await;
        scene.ready("share").await;
        let shared = scene.device_of("share").await.device;

        let labelled = Labelled::new(&scene.stage.cluster, scene.stage.node().name()).await;
        // Four slots on each card. No other device is published, except the one in use, which is tainted.
        scene
            .published("only time-slices, and what is in use", |devices| {
                let held = devices.iter().find(|device| device["attributes"]["type"]["string"] == "mps");
                let slots = |device: &&Value| device["capacity"]["slots"]["value"] == "4";
                (count(devices, "gpu"), count(devices, "mig"), count(devices, "mps")) == (0, 0, 1)
                    && devices.iter().filter(slots).count() == 8
                    && held.is_some_and(|held| !held["taints"].as_array().is_none_or(Vec::is_empty))
            })
            .await;
        scene.program_from_template("another", "share", &["--hold"]).await;
        scene.unschedulable("another").await;
        scene.program_from_template("slice", "slice", &["--hold"]).await;
        scene.ready("slice").await;
        let pools = |devices: &[Value]| {
            let pool = |device: &Value| device["attributes"]["gpuPool"]["string"].as_str().map(str::to_owned);
            let is_share = |device: &&Value| device["attributes"]["type"]["string"] == "mps";
            let held = devices.iter().find(is_share).and_then(pool);
            let others = devices.iter().filter(|device| !is_share(device));
            (held, others.filter_map(pool).collect::<std::collections::BTreeSet<_>>())
        };
        scene
            .published("each device says its pool, and the one in use the one it had", |devices| {
                pools(devices) == (Some("everything".to_owned()), ["notebooks".to_owned()].into())
            })
            .await;
        let sliced = scene.device_of("slice").await.device;
        assert_ne!(sliced, shared);
        assert_eq!(scene.stage.card_use(&sliced).time_slice, 0, "notebooks have the driver's own interval");
        scene.ready("share").await;

        drop(labelled);
        scene
            .published("everything again", |devices| {
                (count(devices, "gpu"), count(devices, "mps"), count(devices, "timeslice")) == (8, 24, 8)
            })
            .await;
        scene.ready("another").await;
        scene.delete_pods(&["share", "another", "slice"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}
