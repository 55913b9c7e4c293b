//! Failures of programs: no pod loses its card, and no card is lost.

use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{Scene, Stage, cards, container, eventually, play};

/// The CDI spec files on the node.
fn cdi_specs(stage: &Stage) -> Vec<String> {
    let entries = std::fs::read_dir(stage.node().cdi_directory()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn nothing_left(scene: &Scene, before: &[String]) {
    eventually("the claim's CDI spec to go", async || (cdi_specs(scene.stage) == before).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_though_the_plugin_was_killed_before() {
    play("a_pod_starts_though_the_plugin_was_killed_before", async |scene| {
        scene.stage.fresh_plugin().await;
        let before = cdi_specs(scene.stage);
        scene.template("one", &[cards("card", 1)]).await;
        scene.stage.kill_plugin().await;
        scene.pod_from_template("pod", "one").await;
        scene.ready("pod").await;
        assert_eq!(scene.view("pod", "main").await.cards().len(), 1);
        scene.delete_pod("pod").await;
        nothing_left(&scene, &before).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_though_the_plugin_is_killed_while_it_prepares() {
    play("a_pod_starts_though_the_plugin_is_killed_while_it_prepares", async |scene| {
        scene.stage.fresh_plugin().await;
        let before = cdi_specs(scene.stage);
        scene.template("one", &[cards("card", 1)]).await;
        // Each look at a card takes twenty seconds, so the plugin is killed in the middle of one.
        scene.stage.emulator("fault", &["--call", "nvmlDeviceGetUUID", "--delay-ms", "20000"]);
        scene.pod_from_template("pod", "one").await;
        let pods = scene.pods().await;
        eventually("the pod to be bound", async || pods.get("pod").await.unwrap().spec?.node_name).await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(cdi_specs(scene.stage), before, "Prepare should still be at work");
        scene.stage.kill_plugin().await;
        scene.stage.emulator("restore", &[]);
        scene.ready("pod").await;
        assert_eq!(scene.view("pod", "main").await.cards(), scene.minors(&scene.claim_of("pod").await).await);
        scene.delete_pod("pod").await;
        nothing_left(&scene, &before).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_keeps_its_card_though_the_plugin_is_killed() {
    play("a_running_pod_keeps_its_card_though_the_plugin_is_killed", async |scene| {
        scene.stage.fresh_plugin().await;
        let before = cdi_specs(scene.stage);
        scene.template("one", &[cards("card", 1)]).await;
        scene.pod_from_template("first", "one").await;
        scene.ready("first").await;
        scene.stage.kill_plugin().await;
        scene.stage.plugin().await;
        scene.pod_from_template("second", "one").await;
        scene.ready("second").await;
        assert_ne!(scene.view("first", "main").await.cards(), scene.view("second", "main").await.cards());
        scene.delete_pod("first").await;
        scene.delete_pod("second").await;
        nothing_left(&scene, &before).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_during_an_upgrade_and_nobody_fights_over_slices() {
    play("a_pod_starts_during_an_upgrade_and_nobody_fights_over_slices", async |scene| {
        scene.template("one", &[cards("card", 1)]).await;
        let versions = |slices: &[ResourceSlice]| -> Vec<(String, i64, String)> {
            let mut all: Vec<_> = slices
                .iter()
                .map(|slice| {
                    let metadata = &slice.metadata;
                    let version = metadata.resource_version.clone().unwrap();
                    (metadata.name.clone().unwrap(), slice.spec.pool.generation, version)
                })
                .collect();
            all.sort();
            all
        };
        let old = scene.stage.plugin().await;
        let before = versions(&scene.stage.slices().await);
        scene.stage.tessera.upgrade(&scene.stage.cluster, "v2", &scene.stage.options).await.unwrap();
        for index in 0..4 {
            let name = format!("pod-{index}");
            scene.pod_from_template(&name, "one").await;
            scene.ready(&name).await;
        }
        eventually("the new plugin alone", async || {
            let new = scene.stage.plugin().await;
            (new.metadata.uid != old.metadata.uid).then_some(())
        })
        .await;
        // Two instances that overwrite each other would go on: what the new instance writes must stay.
        let settled = versions(&scene.stage.slices().await);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(versions(&scene.stage.slices().await), settled);
        assert_eq!(settled, before, "the hardware is the same: an upgrade has nothing to write");
        for index in 0..4 {
            scene.delete_pod(&format!("pod-{index}")).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_deleted_by_force_does_not_give_its_card_to_another_pod() {
    play("a_claim_deleted_by_force_does_not_give_its_card_to_another_pod", async |scene| {
        let before = cdi_specs(scene.stage);
        scene.claim("doomed", &[cards("card", 8)]).await;
        let claim = json!({"name": "card", "resourceClaimName": "doomed"});
        scene.pod("victim", &[container("main", &["card"])], &[claim]).await;
        scene.ready("victim").await;
        // A hasty admin removes the finalizer, so that the claim is gone while its pod runs.
        let kubectl = &scene.stage.cluster;
        let namespace = scene.namespace.as_str();
        kubectl
            .kubectl(&["delete", "resourceclaim", "doomed", "-n", namespace, "--wait=false"])
            .await
            .unwrap();
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let arguments = ["patch", "resourceclaim", "doomed", "-n", namespace, "--type=merge", "-p", patch];
        kubectl.kubectl(&arguments).await.unwrap();

        // The scheduler takes the cards for free; the node knows better, and says which claim holds them.
        scene.template("one", &[cards("card", 1)]).await;
        let made = Instant::now();
        scene.pod_from_template("thief", "one").await;
        let selector = "involvedObject.name=thief,reason=DeviceHeld";
        let arguments = ["get", "events", "-n", namespace, "--field-selector", selector, "-o", "json"];
        let said = eventually("an Event that says who has the card", async || {
            let events: Value = serde_json::from_str(&kubectl.kubectl(&arguments).await.unwrap()).unwrap();
            events["items"].as_array().unwrap().first()?["message"].as_str().map(str::to_owned)
        })
        .await;
        eprintln!("{} ms after the pod was made its Event said: {said}", made.elapsed().as_millis());
        assert!(said.contains(&format!("{namespace}/doomed")) && said.contains("waiting"), "{said}");
        // The kubelet gives a call 45 s, and its own event only says that it took too long.
        assert!(made.elapsed() < Duration::from_secs(45), "{:?}", made.elapsed());
        // It waits as long as the victim runs.
        let claim = scene.claim_of("thief").await;
        let thief = scene.claims().await.get(&claim).await.unwrap().metadata.uid.unwrap();
        let seen = Instant::now();
        while seen.elapsed() < Duration::from_secs(4) {
            let specs = cdi_specs(scene.stage);
            assert!(!specs.iter().any(|spec| spec.contains(&thief)), "the thief got a card: {specs:?}");
            sleep(Duration::from_millis(100)).await;
        }
        let statuses = scene.pods().await.get("thief").await.unwrap().status.unwrap().container_statuses;
        assert!(statuses.unwrap_or_default().iter().all(|status| status.started != Some(true)));

        // The victim ends, the kubelet unprepares, and the other pod gets its card.
        scene.delete_pod("victim").await;
        let ended = Instant::now();
        scene.ready("thief").await;
        let elapsed = ended.elapsed();
        eprintln!("the waiting pod was ready {} ms after the holder had gone", elapsed.as_millis());
        // Without help, the kubelet would only try again a minute or more after its last call.
        assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
        scene.delete_pod("thief").await;
        nothing_left(&scene, &before).await;
    })
    .await;
}
