//! Cards and partitions shared by the containers of one claim, by NVIDIA's own configuration kinds.

use kube::api::DeleteParams;
use tessera_harness::scene::eventually;

use crate::stage::{Scene, play};

/// Both containers of the pod have the same card.
async fn one_card(scene: &Scene) -> String {
    let card = scene.view("pod", "ctr0").await.card();
    assert_eq!(card, scene.view("pod", "ctr1").await.card());
    card
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_shared_by_time() {
    play("time-slicing", async |scene| {
        let card = one_card(&scene).await;
        assert_eq!(scene.stage.cards()[&card]["timeSlice"], 3);
        scene.pods().await.delete("pod", &DeleteParams::default()).await.unwrap();
        eventually("the driver's own time-slices", async || {
            (scene.stage.cards()[&card]["timeSlice"] == 0).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_shared_by_mps() {
    play("mps", async |scene| {
        let card = one_card(&scene).await;
        for container in ["ctr0", "ctr1"] {
            let environment = scene.view("pod", container).await.environment;
            assert!(environment.contains_key("CUDA_MPS_PIPE_DIRECTORY"), "{container}: {environment:?}");
        }
        assert_eq!(scene.stage.cards()[&card]["computeMode"], 3, "only MPS gets in");
        scene.pods().await.delete("pod", &DeleteParams::default()).await.unwrap();
        eventually("the card to be free for all", async || {
            (scene.stage.cards()[&card]["computeMode"] == 0).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_shared_by_time() {
    play("partition-with-time-slicing", async |scene| {
        let partition = scene.view("pod", "ctr0").await.partition();
        assert_eq!(partition, scene.view("pod", "ctr1").await.partition());
    })
    .await;
}
