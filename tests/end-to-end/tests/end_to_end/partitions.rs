//! MIG partitions: made for a claim, and destroyed with it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{ContainerView, Scene, Stage, cards, eventually, partition, play};

/// Minimum duration of the churn; it takes longer on a machine where few pods have started by then.
const CHURN: Duration = Duration::from_secs(60);
const CHURN_AT_MOST: Duration = Duration::from_secs(900);
const PODS: usize = 25;
/// More 1g than fit on two cards, and enough larger ones that cards have to be emptied for them.
const PROFILES: [&str; 5] = ["1g.10gb", "2g.20gb", "1g.10gb", "3g.40gb", "1g.20gb"];

/// The UUID of a container's only partition, on its only card.
fn uuid(view: &ContainerView) -> String {
    assert_eq!(view.cards().len(), 1, "{:?}", view.devices);
    view.partition()
}

/// Number of partitions of the machine.
fn partitions(stage: &Stage) -> usize {
    stage.mig().iter().map(|card| card.instances.len()).sum()
}

async fn no_partition_is_left(stage: &Stage) {
    eventually("every partition to go, and MIG mode with them", async || {
        let cards = stage.mig();
        cards.iter().all(|card| card.instances.is_empty() && !card.enabled).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seven_pods_run_on_one_card() {
    play("seven_pods_run_on_one_card", async |scene| {
        scene.template("slice", &[partition("slice", "1g.10gb")]).await;
        for index in 0..7 {
            scene.pod_from_template(&format!("pod-{index}"), "slice").await;
        }
        let (mut uuids, mut cards, mut nodes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for index in 0..7 {
            let pod = format!("pod-{index}");
            scene.ready(&pod).await;
            let view = scene.view(&pod, "main").await;
            uuids.insert(uuid(&view));
            cards.extend(view.cards());
            nodes.extend(view.capabilities());
        }
        assert_eq!((uuids.len(), cards.len(), nodes.len()), (7, 1, 14));
        assert_eq!(partitions(scene.stage), 7);
        for index in 0..7 {
            scene.delete_pod(&format!("pod-{index}")).await;
        }
        no_partition_is_left(scene.stage).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_and_three_sevenths_share_a_card() {
    play("four_and_three_sevenths_share_a_card", async |scene| {
        scene.template("four", &[partition("slice", "4g.40gb")]).await;
        scene.template("three", &[partition("slice", "3g.40gb")]).await;
        // The larger one first: the order alone must leave room for the other.
        scene.pod_from_template("four", "four").await;
        scene.ready("four").await;
        scene.pod_from_template("three", "three").await;
        scene.ready("three").await;
        let (four, three) = (scene.view("four", "main").await, scene.view("three", "main").await);
        assert_eq!(four.cards(), three.cards());
        assert_ne!(uuid(&four), uuid(&three));
        scene.delete_pod("four").await;
        scene.delete_pod("three").await;
        no_partition_is_left(scene.stage).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_has_room_is_a_partition_if_one_can_be_made() {
    play("whatever_has_room_is_a_partition_if_one_can_be_made", async |scene| {
        let example = include_str!("../../../../examples/partitions/partition-or-card.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(example).unwrap();
        let [mut template, _] = <[Value; 2]>::try_from(objects).unwrap();
        template["metadata"]["namespace"] = json!(scene.namespace);
        scene.apply(template).await;
        scene.pod_from_template("reranker", "partition-or-card").await;
        scene.ready("reranker").await;
        assert!(!uuid(&scene.view("reranker", "main").await).is_empty());
        scene.delete_pod("reranker").await;
        no_partition_is_left(scene.stage).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_card_waits_for_a_partition_and_then_runs() {
    play("a_whole_card_waits_for_a_partition_and_then_runs", async |scene| {
        scene.template("seven", &[cards("cards", 7)]).await;
        scene.template("whole", &[cards("card", 1)]).await;
        scene.template("slice", &[partition("slice", "2g.20gb")]).await;
        scene.pod_from_template("slice", "slice").await;
        scene.ready("slice").await;
        scene.pod_from_template("seven", "seven").await;
        scene.ready("seven").await;
        scene.pod_from_template("whole", "whole").await;
        scene.unschedulable("whole").await;
        let divided = scene.view("slice", "main").await.cards();
        scene.delete_pod("slice").await;
        scene.ready("whole").await;
        let whole = scene.view("whole", "main").await;
        assert_eq!(whole.cards(), divided);
        assert!(whole.capabilities().is_empty());
        assert!(
            scene.stage.mig().iter().all(|card| !card.enabled),
            "a whole card works with MIG mode off only"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_outlives_the_plugin() {
    play("a_partition_outlives_the_plugin", async |scene| {
        scene.stage.fresh_plugin().await;
        scene.template("slice", &[partition("slice", "1g.10gb")]).await;
        scene.pod_from_template("first", "slice").await;
        scene.ready("first").await;
        let first = uuid(&scene.view("first", "main").await);
        scene.stage.kill_plugin().await;
        scene.stage.plugin().await;
        scene.pod_from_template("second", "slice").await;
        scene.ready("second").await;
        let second = uuid(&scene.view("second", "main").await);
        assert_ne!(first, second);
        assert_eq!(partitions(scene.stage), 2);
        scene.delete_pod("first").await;
        scene.delete_pod("second").await;
        no_partition_is_left(scene.stage).await;
    })
    .await;
}

/// The pods of the churn that are not being deleted.
async fn living(scene: &Scene) -> Vec<Pod> {
    let all = scene.pods().await.list(&ListParams::default()).await.unwrap().items;
    let of_churn = |pod: &Pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("churn-"));
    all.into_iter().filter(|pod| of_churn(pod) && pod.metadata.deletion_timestamp.is_none()).collect()
}

async fn delete(scene: &Scene, pod: &Pod) {
    let name = pod.metadata.name.as_deref().unwrap();
    scene.pods().await.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Ends every second running pod and creates others up to the wanted number; returns how many it ended.
async fn replace(scene: &Scene, made: &mut usize) -> usize {
    let living = living(scene).await;
    let leaving: Vec<&Pod> = living.iter().filter(|pod| is_ready(pod)).step_by(2).collect();
    for pod in &leaving {
        delete(scene, pod).await;
    }
    for _ in living.len() - leaving.len()..PODS {
        *made += 1;
        scene.pod_from_template(&format!("churn-{made}"), PROFILES[*made % PROFILES.len()]).await;
    }
    leaving.len()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_and_go_on_two_cards_and_nothing_leaks() {
    play("pods_come_and_go_on_two_cards_and_nothing_leaks", async |scene| {
        scene.template("six", &[cards("cards", 6)]).await;
        scene.pod_from_template("six", "six").await;
        scene.ready("six").await;
        for profile in PROFILES.iter().collect::<BTreeSet<_>>() {
            scene.template(profile, &[partition("slice", profile)]).await;
        }
        let begin = Instant::now();
        let (mut ended, mut made) = (0, 0);
        while begin.elapsed() < CHURN || ended <= 2 * PODS {
            assert!(begin.elapsed() < CHURN_AT_MOST, "only {ended} pods came up");
            ended += replace(&scene, &mut made).await;
            sleep(Duration::from_secs(2)).await;
        }

        // Pods that still wait must be served as the others end.
        let mut waiting = living(&scene).await.len();
        while waiting > 0 {
            waiting = eventually("the next pod to have its turn", async || {
                let living = living(&scene).await;
                for pod in living.iter().filter(|pod| is_ready(pod)) {
                    delete(&scene, pod).await;
                }
                (living.len() < waiting).then_some(living.len())
            })
            .await;
        }
        scene.delete_pod("six").await;
        eventually("every claim to go", async || {
            let claims: Vec<ResourceClaim> =
                scene.claims().await.list(&ListParams::default()).await.unwrap().items;
            claims.is_empty().then_some(())
        })
        .await;
        no_partition_is_left(scene.stage).await;
    })
    .await;
}
