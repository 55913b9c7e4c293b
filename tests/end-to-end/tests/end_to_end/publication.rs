//! The node's slices come back when somebody removes them.

use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_harness::Component;
use tokio::time::sleep;

use crate::stage::{LIMIT, Stage, cards, eventually, play};

/// Names and devices of the node's slices, without generations and versions, which change when they are written anew.
fn published(slices: &[ResourceSlice]) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<_> = slices
        .iter()
        .map(|slice| {
            let devices = slice.spec.devices.iter().flatten().map(|device| device.name.clone()).collect();
            (slice.metadata.name.clone().unwrap(), devices)
        })
        .collect();
    all.sort();
    all
}

async fn back(stage: &Stage, before: &[(String, Vec<String>)], removed: Instant) -> Duration {
    eventually("the slices to come back", async || {
        (published(&stage.slices().await) == before).then_some(())
    })
    .await;
    removed.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_deleted_by_hand_come_back() {
    play("slices_deleted_by_hand_come_back", async |scene| {
        let before = published(&scene.stage.slices().await);
        let whole = |device: &&String| matches!(device.parse(), Ok(tessera_api::DeviceName::Card(_)));
        assert_eq!(before.iter().flat_map(|(_, devices)| devices).filter(whole).count(), 8);
        let removed = Instant::now();
        scene.stage.cluster.kubectl(&["delete", "resourceslices", "--all"]).await.unwrap();
        let took = back(scene.stage, &before, removed).await;
        eprintln!("slices back {} ms after kubectl delete began", took.as_millis());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_kubelet_finds_the_slices_and_the_pod_again() {
    play("a_restarted_kubelet_finds_the_slices_and_the_pod_again", async |scene| {
        scene.template("one", &[cards("card", 1)]).await;
        scene.pod_from_template("before", "one").await;
        scene.ready("before").await;
        let before = scene.stage.slices().await;
        let slices = published(&before);
        scene.stage.cluster.restart_component(Component::Kubelet(0)).await.unwrap();
        // The kubelet deletes the node's slices some time after its start: all are new ones then.
        let restarted = Instant::now();
        let (mut wiped, mut longest) = (None, Duration::ZERO);
        loop {
            let now = scene.stage.slices().await;
            if published(&now) != slices {
                wiped.get_or_insert_with(Instant::now);
            } else {
                longest = longest.max(wiped.take().map_or(Duration::ZERO, |since: Instant| since.elapsed()));
                let is_new =
                    |slice: &ResourceSlice| before.iter().all(|old| old.metadata.uid != slice.metadata.uid);
                if now.iter().all(is_new) {
                    break;
                }
            }
            assert!(restarted.elapsed() < LIMIT, "the slices stay away, or were never wiped");
            sleep(Duration::from_millis(2)).await;
        }
        eprintln!("kubelet restart: slices were incomplete for {} ms", longest.as_millis());
        scene.ready("before").await;
        scene.pod_from_template("after", "one").await;
        scene.ready("after").await;
        assert_ne!(scene.view("before", "main").await.cards(), scene.view("after", "main").await.cards());
        scene.delete_pod("before").await;
    })
    .await;
}
