//! Devices held by one claim and shared by its pods, as its configuration says.

use serde_json::{Value, json};

use crate::{
    program::program,
    shares::EXCLUSIVE_PROCESS,
    stage::{CLASS, MIG_CLASS, Scene, eventually, play},
};

/// The example in `docs/sharing.md`.
const EXAMPLE: &str = include_str!("../../../../examples/one-claim/mps.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn two_cards_of_a_claim_are_shared_by_mps_as_the_documentation_shows() {
    play("two_cards_of_a_claim_are_shared_by_mps_as_the_documentation_shows", async |scene| {
        let objects: Vec<Value> = serde_saphyr::from_multiple(EXAMPLE).unwrap();
        let [mut claim, mut pod] = <[Value; 2]>::try_from(objects).unwrap();
        claim["metadata"]["namespace"] = json!(scene.namespace);
        scene.apply(claim).await;
        // The emulated machine's program in place of a CUDA program.
        let arguments = ["--allocate-mib", "10000", "--hold"];
        for container in pod["spec"]["containers"].as_array_mut().unwrap() {
            let name = container["name"].as_str().unwrap().to_owned();
            *container = program(&name, &["pair"], &arguments);
        }
        let (containers, claims) = (pod["spec"]["containers"].take(), pod["spec"]["resourceClaims"].take());
        let claims = claims.as_array().unwrap();
        scene.program_pod("side-by-side", "Never", containers.as_array().unwrap(), claims).await;
        let later = program("main", &["pair"], &["--device", "1", "--hold"]);
        scene.program_pod("later", "Never", &[later], claims).await;
        scene.ready("side-by-side").await;
        scene.ready("later").await;

        let left = scene.devices_of("side-by-side", "left", 1).await.remove(0);
        assert_eq!((left.memory_limit_mib, left.active_thread_percentage), (Some(10 << 10), 50.0));
        assert_eq!(scene.devices_of("side-by-side", "right", 1).await[0], left);
        let later = scene.device_of("later").await;
        assert_ne!(later.device, left.device);
        assert_eq!(
            (later.mps_server, later.memory_limit_mib, later.active_thread_percentage),
            (left.mps_server, Some(10 << 10), 50.0)
        );
        for container in ["left", "right"] {
            scene.says("side-by-side", container, r#"{"holdsMiB":10000}"#).await;
        }
        let beyond = scene.run_in("later", "main", &["--allocate-mib", "10241"]).await;
        assert!(beyond.stdout.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{beyond:?}");
        let daemons = scene.stage.daemons().await;
        assert_eq!((daemons.len(), daemons[0].others.len()), (1, 1));
        for card in [&left.device, &later.device] {
            assert!(daemons[0].serves(card));
            assert_eq!(scene.stage.card_use(card).compute_mode, EXCLUSIVE_PROCESS);
        }
        scene.delete_pods(&["side-by-side", "later"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

/// Creates a claim template with requests and configuration objects, each for one of the requests.
/// A claim template with requests, and a configuration of such a kind and sharing for each of some.
fn template(scene: &Scene, name: &str, requests: &[Value], configs: &[(&str, &str, Value)]) -> Value {
    let config = |(request, kind, sharing): &(&str, &str, Value)| {
        let parameters = json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": kind, "sharing": sharing});
        json!({"requests": [request], "opaque": {"driver": CLASS, "parameters": parameters}})
    };
    let configs: Vec<Value> = configs.iter().map(config).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {"spec": {"devices": {"requests": requests, "config": configs}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_s_time_slices_and_a_partition_shared_by_mps() {
    play("a_claim_s_time_slices_and_a_partition_shared_by_mps", async |scene| {
        let requests = [
            json!({"name": "card", "exactly": {"deviceClassName": CLASS}}),
            json!({"name": "part", "exactly": {"deviceClassName": MIG_CLASS}}),
        ];
        let slicing = json!({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}});
        let mps = json!({"strategy": "MPS", "mps": {"pinnedDeviceMemoryLimit": "2Gi"}});
        let configs = [("card", "GpuConfig", slicing), ("part", "MigDeviceConfig", mps)];
        scene.apply(template(&scene, "both", &requests, &configs)).await;
        let claim = json!({"name": "gpu", "resourceClaimTemplateName": "both"});
        let containers = [
            program("slice-1", &["gpu/card"], &["--hold"]),
            program("slice-2", &["gpu/card"], &["--hold"]),
            program("part-1", &["gpu/part"], &["--allocate-mib", "2000", "--hold"]),
            program("part-2", &["gpu/part"], &["--allocate-mib", "2000", "--hold"]),
        ];
        scene.program_pod("pod", "Never", &containers, &[claim]).await;
        scene.ready("pod").await;
        let card = scene.devices_of("pod", "slice-1", 1).await.remove(0);
        assert_eq!(
            (card.mps_server, scene.devices_of("pod", "slice-2", 1).await.remove(0)),
            (None, card.clone())
        );
        assert_eq!(scene.stage.card_use(&card.device).time_slice, 3);
        let part = scene.devices_of("pod", "part-1", 1).await.remove(0);
        assert!(part.device.starts_with("MIG-"), "{part:?}");
        assert_eq!((part.mps_server.is_some(), part.memory_limit_mib), (true, Some(2 << 10)));
        assert_eq!(scene.devices_of("pod", "part-2", 1).await[0], part);
        for container in ["part-1", "part-2"] {
            scene.says("pod", container, r#"{"holdsMiB":2000}"#).await;
        }
        scene.delete_pod("pod").await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_can_not_be_is_told() {
    play("a_configuration_that_can_not_be_is_told", async |scene| {
        let requests = [json!({"name": "card", "exactly": {"deviceClassName": CLASS}})];
        let mps = |percentage| json!({"strategy": "MPS", "mps": {"activeThreadPercentage": percentage}});
        let wrong = template(&scene, "wrong", &requests, &[("card", "GpuConfig", mps(101))]);
        let refused = scene.stage.cluster.apply(&wrong.to_string()).await.unwrap_err().to_string();
        assert!(refused.contains("activeThreadPercentage: 101 is not a percentage of threads"), "{refused}");

        // What is well formed can be of the wrong kind: only what was allocated tells.
        scene
            .apply(template(&scene, "for-partitions", &requests, &[("card", "MigDeviceConfig", mps(50))]))
            .await;
        let claim = json!({"name": "gpu", "resourceClaimTemplateName": "for-partitions"});
        scene.program_pod("pod", "Never", &[program("main", &["gpu"], &["--hold"])], &[claim]).await;
        let arguments = ["get", "events", "-n", &scene.namespace, "-o", "json"];
        eventually("an event that says what is wrong", async || {
            let events = scene.stage.cluster.kubectl(&arguments).await.ok()?;
            events.contains("MigDeviceConfig is not for devices of type gpu").then_some(())
        })
        .await;
        scene.delete_pod("pod").await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}
