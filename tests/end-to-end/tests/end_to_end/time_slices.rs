//! Time-sliced cards.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{program::program, shares::time_slice, stage::play};

#[tokio::test(flavor = "multi_thread")]
async fn ten_time_slices_of_a_card_run_together_and_the_eleventh_goes_to_the_next() {
    play("ten_time_slices_of_a_card_run_together_and_the_eleventh_goes_to_the_next", async |scene| {
        scene.template("slice", &[time_slice("slice")]).await;
        let pods: Vec<String> = (0..11).map(|number| format!("pod-{number}")).collect();
        for pod in &pods {
            scene.program_from_template(pod, "slice", &["--allocate-mib", "7000", "--hold"]).await;
        }
        let mut of_card: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &pods {
            scene.ready(pod).await;
            scene.says(pod, "main", r#"{"holdsMiB":7000}"#).await;
            let device = scene.device_of(pod).await;
            assert_eq!((device.mps_server, device.memory_limit_mib), (None, None), "{device:?}");
            assert_eq!(device.multiprocessors, Some(132), "all of them, for a while");
            *of_card.entry(device.device).or_default() += 1;
        }
        let mut counts: Vec<usize> = of_card.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 10], "{of_card:?}");
        for card in of_card.keys() {
            let state = scene.stage.card_use(card);
            // The interval `Short` in the GpuPool.
            assert_eq!((state.time_slice, state.compute_mode), (1, 0), "{state:?}");
        }
        // Only the card limits memory, as documented.
        let (full, _) = of_card.iter().find(|(_, count)| **count == 10).unwrap();
        let mut on_full = None;
        for pod in &pods {
            if scene.device_of(pod).await.device == *full {
                on_full = Some(pod);
            }
        }
        let refused = scene.run_in(on_full.unwrap(), "main", &["--allocate-mib", "20000"]).await;
        assert!(refused.stdout.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused:?}");
        scene.delete_pods(&pods.iter().map(String::as_str).collect::<Vec<_>>()).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_an_extended_resource_share_a_card_without_a_claim_of_their_own() {
    play("pods_with_an_extended_resource_share_a_card_without_a_claim_of_their_own", async |scene| {
        let pods = ["first", "second"];
        for pod in pods {
            let mut container = program("main", &[], &["--hold"]);
            container["resources"] = json!({"limits": {"nvidia.com/gpu.shared": "1"}});
            scene.program_pod(pod, "Never", &[container], &[]).await;
        }
        for pod in pods {
            scene.ready(pod).await;
        }
        let (first, second) = (scene.device_of("first").await, scene.device_of("second").await);
        assert_eq!(first, second);
        assert_eq!(scene.stage.card_use(&first.device).time_slice, 1);
        scene.delete_pods(&pods).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}
