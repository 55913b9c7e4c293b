//! What happens when no cards are left, and how a pod without a claim gets cards.

use kube::api::DeleteParams;
use serde_json::json;
use tessera_harness::TEST_IMAGE;

use crate::stage::{cards, eventually, play};

#[tokio::test(flavor = "multi_thread")]
async fn the_ninth_pod_runs_when_one_of_eight_goes() {
    play("the_ninth_pod_runs_when_one_of_eight_goes", async |scene| {
        scene.template("one", &[cards("card", 1)]).await;
        let mut taken = Vec::new();
        for index in 0..8 {
            scene.pod_from_template(&format!("pod-{index}"), "one").await;
        }
        for index in 0..8 {
            scene.ready(&format!("pod-{index}")).await;
            taken.extend(scene.view(&format!("pod-{index}"), "main").await.cards());
        }
        taken.sort_unstable();
        assert_eq!(taken, (0..8).collect::<Vec<u64>>());
        scene.pod_from_template("ninth", "one").await;
        scene.unschedulable("ninth").await;
        let freed = scene.view("pod-3", "main").await.cards();
        scene.delete_pod("pod-3").await;
        scene.ready("ninth").await;
        assert_eq!(scene.view("ninth", "main").await.cards(), freed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_an_extended_resource_runs_unchanged() {
    play("a_pod_with_an_extended_resource_runs_unchanged", async |scene| {
        scene
            .apply(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "unchanged", "namespace": scene.namespace},
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{
                    "name": "main", "image": TEST_IMAGE, "imagePullPolicy": "Never", "command": ["/bin/hold", "view"],
                    "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
            }))
            .await;
        scene.ready("unchanged").await;
        assert_eq!(scene.view("unchanged", "main").await.cards().len(), 2);
        let claims = scene.claims().await;
        let made = claims.list(&kube::api::ListParams::default()).await.unwrap().items;
        assert_eq!(made.len(), 1);
        scene.pods().await.delete("unchanged", &DeleteParams::default()).await.unwrap();
        eventually("the scheduler's claim to go with its pod", async || {
            let left = claims.list(&kube::api::ListParams::default()).await.unwrap().items;
            left.is_empty().then_some(())
        })
        .await;
    })
    .await;
}
