//! One claim on a share, used by several containers and pods.

use serde_json::json;

use crate::{program::program, shares::share, stage::play};

#[tokio::test(flavor = "multi_thread")]
async fn containers_and_pods_of_one_claim_get_a_process_s_part_each() {
    play("containers_and_pods_of_one_claim_get_a_process_s_part_each", async |scene| {
        scene
            .claim("ours", &[share("share", &json!({"memory": "20Gi", "compute": "40", "clients": "4"}))])
            .await;
        let claim = json!({"name": "card", "resourceClaimName": "ours"});
        let arguments = ["--allocate-mib", "5000", "--hold"];
        let both = [program("left", &["card"], &arguments), program("right", &["card"], &arguments)];
        scene.program_pod("two", "Never", &both, std::slice::from_ref(&claim)).await;
        scene.program_pod("one", "Never", &[program("main", &["card"], &arguments)], &[claim]).await;
        scene.ready("two").await;
        scene.ready("one").await;
        let left = scene.devices_of("two", "left", 1).await.remove(0);
        assert_eq!(left.memory_limit_mib, Some(5 << 10));
        assert_eq!((left.active_thread_percentage, left.multiprocessors), (10.0, Some(14)));
        assert_eq!(scene.devices_of("two", "right", 1).await[0], left);
        assert_eq!(scene.device_of("one").await, left);
        for (pod, container) in [("two", "left"), ("two", "right"), ("one", "main")] {
            scene.says(pod, container, r#"{"holdsMiB":5000}"#).await;
            let beyond = scene.run_in(pod, container, &["--allocate-mib", "6000"]).await;
            assert!(beyond.stdout.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{beyond:?}");
        }
        // Clients of one daemon share `/dev/shm` with it and with each other.
        scene.run_in("one", "main", &["/bin/write", "/dev/shm/word", "from-one"]).await;
        let read = scene.run_in("two", "right", &["/bin/cat", "/dev/shm/word"]).await;
        assert_eq!(read.stdout, "from-one\n", "{read:?}");
        // The share lives as long as any of its pods.
        scene.delete_pod("two").await;
        scene.ready("one").await;
        assert_eq!(scene.another_in("one", "main", &[]).await, left);
        scene.delete_pod("one").await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_gets_the_share_that_it_names() {
    play("each_container_gets_the_share_that_it_names", async |scene| {
        let requests = [
            share("large", &json!({"memory": "30Gi", "compute": "50"})),
            share("small", &json!({"memory": "6Gi", "compute": "10"})),
        ];
        scene.template("two-shares", &requests).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "two-shares"});
        let mut containers = [
            program("large", &["card/large"], &["--hold"]),
            program("small", &["card/small"], &["--hold"]),
            program("neither", &[], &["--hold"]),
        ];
        // As docs/sharing.md recommends.
        containers[0]["securityContext"] = json!({"runAsUser": 1000, "runAsNonRoot": true});
        containers[2]["command"] = json!(["/bin/hold", "view"]);
        scene.program_pod("pod", "Never", &containers, &[claim]).await;
        scene.ready("pod").await;
        let large = scene.devices_of("pod", "large", 1).await.remove(0);
        let small = scene.devices_of("pod", "small", 1).await.remove(0);
        assert_eq!((large.memory_limit_mib, large.active_thread_percentage), (Some(30 << 10), 50.0));
        assert_eq!((small.memory_limit_mib, small.active_thread_percentage), (Some(6 << 10), 10.0));
        let neither = scene.view("pod", "neither").await;
        assert!(
            neither.cards().is_empty() && !neither.environment.keys().any(|name| name.starts_with("CUDA"))
        );
        scene.delete_pod("pod").await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}
