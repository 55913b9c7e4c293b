//! Whole cards.

use std::collections::BTreeSet;

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tessera_harness::scene::eventually;

use crate::dcgm::{Joined, joined};
use crate::stage::{Scene, play, text};

#[tokio::test(flavor = "multi_thread")]
async fn one_card() {
    play("one-card", async |scene| {
        let card = scene.view("pod", "ctr").await.card();
        let allocated = scene.allocated().await;
        assert_eq!(
            allocated.iter().map(|device| text(device, "uuid")).collect::<Vec<_>>(),
            std::slice::from_ref(&card)
        );
        let of_pod = Joined { pod: "pod".into(), container: "ctr".into(), card, partition: None };
        assert_eq!(joined(&scene).await, [of_pod], "as dcgm-exporter sees it");
        hooks_have_run(&scene).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_have_a_card_each() {
    play("two-pods", async |scene| {
        assert_ne!(scene.view("pod1", "ctr").await.card(), scene.view("pod2", "ctr").await.card());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_with_one_claim_have_one_card() {
    play("shared-claim", async |scene| {
        assert_eq!(scene.view("pod1", "ctr").await.card(), scene.view("pod2", "ctr").await.card());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_with_one_claim_have_one_card() {
    play("two-containers", async |scene| {
        assert_eq!(scene.view("pod", "ctr0").await.card(), scene.view("pod", "ctr1").await.card());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_for_two_cards() {
    play("two-cards", async |scene| {
        assert_eq!(scene.view("pod", "ctr").await.uuids("GPU-").len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_claims_of_one_container() {
    play("two-claims", async |scene| {
        assert_eq!(scene.view("pod", "ctr").await.uuids("GPU-").len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_find_what_they_find_there() {
    play("selectors", async |scene| {
        let mut cards = BTreeSet::new();
        for pod in ["name", "architecture", "versions", "memory"] {
            cards.insert(scene.view(pod, "ctr").await.card());
        }
        assert_eq!(cards.len(), 4);
        let pods = scene.pods().await;
        eventually("the last pod to find nothing", async || {
            let conditions = pods.get("nomatch").await.unwrap().status?.conditions?;
            let waits = |reason: &str, message: &str| {
                reason == "Unschedulable" && message.contains("cannot allocate")
            };
            let told = |condition: &k8s_openapi::api::core::v1::PodCondition| {
                waits(
                    condition.reason.as_deref().unwrap_or_default(),
                    condition.message.as_deref().unwrap_or_default(),
                )
            };
            conditions.iter().any(told).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_extended_resource_of_the_device_plugin() {
    play("extended-resource", async |scene| {
        let card = scene.view("pod", "cuda-container").await.card();
        let allocated = scene.allocated().await;
        assert_eq!(allocated.iter().map(|device| text(device, "uuid")).collect::<Vec<_>>(), [card]);
    })
    .await;
}

/// The selectors of these classes read an attribute without a guard, and check nothing but the type.
#[tokio::test(flavor = "multi_thread")]
async fn the_selectors_of_their_classes() {
    play("classes", async |scene| {
        let (card, partition) =
            (scene.view("pod", "whole").await.card(), scene.view("pod", "mig").await.partition());
        let allocated = scene.allocated().await;
        let types: Vec<String> = allocated.iter().map(|device| text(device, "type")).collect();
        assert_eq!(types, ["gpu", "mig"]);
        assert_eq!(text(&allocated[0], "uuid"), card);
        assert_ne!(text(&allocated[1], "parentUUID"), card);
        assert!(!partition.is_empty());
        scene.pods().await.delete("pod", &DeleteParams::default()).await.unwrap();
        let classes = ["delete", "deviceclass", "whole.example.com", "mig.example.com"];
        scene.stage.cluster.kubectl(&classes).await.unwrap();
        // Their churn test requires that nothing remains.
        let claims: kube::Api<k8s_openapi::api::resource::v1::ResourceClaim> =
            kube::Api::namespaced(scene.stage.client().await, &scene.namespace);
        eventually("the claims to go with the pod", async || {
            claims.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    })
    .await;
}

/// What NVIDIA's hooks do before a container's program starts: others find the driver's libraries by `ld.so.cache` and by links.
async fn hooks_have_run(scene: &Scene) {
    let run = async |command: &[&str]| {
        scene.stage.cluster.exec(&scene.namespace, "pod", Some("ctr"), command).await.unwrap()
    };
    let cache = run(&["cat", "/etc/ld.so.cache"]).await;
    for library in ["/lib/libcuda.so.1", "/lib/libnvidia-ml.so.1"] {
        assert!(cache.contains(library), "{library} is missing in {cache:?}");
    }
    let links: Vec<Value> =
        serde_json::from_str(&run(&["stat", "/lib/libcuda.so", "/lib/libcuda.so.1"]).await).unwrap();
    let targets: Vec<&str> = links.iter().map(|link| link["target"].as_str().unwrap_or("none")).collect();
    let [first, file] = targets[..] else { panic!("{links:?}") };
    assert_eq!(first, "libcuda.so.1");
    let file: Vec<Value> = serde_json::from_str(&run(&["stat", &format!("/lib/{file}")]).await).unwrap();
    assert_eq!((&file[0]["kind"], &file[0]["openError"]), (&json!("file"), &Value::Null), "{file:?}");
}
