//! MPS shares of cards and of partitions: of any size, with limits that hold in the containers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tessera_harness::PodState;

use crate::{
    shares::{EXCLUSIVE_PROCESS, MPS_CLASS, share, share_of_partition, time_slice},
    stage::{LIMIT, cards, partition, play},
};

/// A quarter of 81559 MiB without the reserved 480, in steps of 128 MiB.
const QUARTER: u64 = 20_224;

#[tokio::test(flavor = "multi_thread")]
async fn four_quarters_of_a_card_run_together_and_the_fifth_goes_to_the_next() {
    play("four_quarters_of_a_card_run_together_and_the_fifth_goes_to_the_next", async |scene| {
        scene.template("quarter", &[share("share", &json!({}))]).await;
        let pods = ["a", "b", "c", "d", "e"];
        for pod in pods {
            scene.program_from_template(pod, "quarter", &["--allocate-mib", "20224", "--hold"]).await;
        }
        let mut of_card: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for pod in pods {
            scene.ready(pod).await;
            scene.says(pod, "main", r#"{"holdsMiB":20224}"#).await;
            let device = scene.device_of(pod).await;
            assert!(device.mps_server.is_some(), "{device:?}");
            assert_eq!(device.memory_limit_mib, Some(QUARTER));
            assert_eq!((device.active_thread_percentage, device.multiprocessors), (25.0, Some(33)));
            of_card.entry(device.device).or_default().push(pod);
        }
        let mut counts: Vec<usize> = of_card.values().map(Vec::len).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 4], "{of_card:?}");
        for card in of_card.keys() {
            assert_eq!(scene.stage.card_use(card).compute_mode, EXCLUSIVE_PROCESS);
        }
        let environment = scene.environment_of("a", "main").await;
        assert_eq!(environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=20224M");
        assert_eq!(environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "25");
        assert_eq!(environment["CUDA_MPS_PIPE_DIRECTORY"], "/tmp/nvidia-mps");

        // A container that changes its limits gains nothing, and no program gets in without MPS.
        let without = ["-u", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "-u", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"];
        let sample = ["/usr/bin/cuda-sample"];
        let hostile = scene.another_in("a", "main", &[&["/bin/env"], &without[..], &sample].concat()).await;
        assert_eq!((hostile.memory_limit_mib, hostile.active_thread_percentage), (Some(QUARTER), 25.0));
        let past = ["/bin/env", "CUDA_MPS_PIPE_DIRECTORY=/nowhere", "/usr/bin/cuda-sample"];
        let refused = scene.run_in("a", "main", &past).await;
        assert!(refused.stdout.contains("CUDA_ERROR_DEVICE_UNAVAILABLE"), "{refused:?}");
        scene.delete_pods(&pods).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

/// The examples in `docs/sharing.md`: a share of a card, of a partition, and of either.
#[tokio::test(flavor = "multi_thread")]
async fn who_says_which_gets_a_share_of_a_card_or_of_a_partition() {
    play("who_says_which_gets_a_share_of_a_card_or_of_a_partition", async |scene| {
        let examples = [
            include_str!("../../../../examples/mps-shares/of-a-card.yaml"),
            include_str!("../../../../examples/mps-shares/of-a-partition.yaml"),
        ];
        for example in examples {
            let objects: Vec<Value> = serde_saphyr::from_multiple(example).unwrap();
            let [mut template, _] = <[Value; 2]>::try_from(objects).unwrap();
            template["metadata"]["namespace"] = json!(scene.namespace);
            scene.apply(template).await;
        }
        let any = json!({"name": "share", "exactly": {"deviceClassName": MPS_CLASS}});
        scene.template("any-share", &[any]).await;
        let mut devices = BTreeMap::new();
        // `any-share` first: once a card is shared as a whole, a share of it is the smallest device with room.
        for name in ["any-share", "share-of-a-card", "share-of-a-partition"] {
            scene.program_from_template(name, name, &["--hold"]).await;
            scene.ready(name).await;
            let claim = scene.claim_of(name).await;
            devices.insert(name, (scene.devices(&claim).await.remove(0), scene.device_of(name).await));
        }
        let (name, card) = &devices["share-of-a-card"];
        assert!(name.ends_with("-mps") && !name.contains("-mig-"), "{name}");
        assert_eq!((card.memory_limit_mib, card.active_thread_percentage), (Some(20 << 10), 25.0));
        let (name, part) = &devices["share-of-a-partition"];
        assert!(name.ends_with("-mps") && name.contains("-mig-3g40gb-"), "{name}");
        assert_eq!((part.memory_limit_mib, part.active_thread_percentage), (Some(10 << 10), 50.0));
        assert_ne!(card.device, part.device);
        let (name, _) = &devices["any-share"];
        assert!(name.contains("-mig-3g40gb-"), "the smallest: {name}");
        scene.delete_pods(&["share-of-a-card", "share-of-a-partition", "any-share"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_beyond_its_limit_fails_and_its_neighbour_goes_on() {
    play("a_pod_beyond_its_limit_fails_and_its_neighbour_goes_on", async |scene| {
        scene.template("small", &[share("share", &json!({"memory": "10Gi", "compute": "30"}))]).await;
        scene.program_from_template("neighbour", "small", &["--allocate-mib", "5000", "--hold"]).await;
        scene.says("neighbour", "main", r#"{"holdsMiB":5000}"#).await;
        let greedy = ["--allocate-mib", "10000", "--allocate-mib", "1000", "--hold"];
        scene.program_from_template("greedy", "small", &greedy).await;
        let cluster = &scene.stage.cluster;
        cluster.wait_for_pod(&scene.namespace, "greedy", PodState::Failed, LIMIT).await.unwrap();
        scene.says("greedy", "main", r#"{"holdsMiB":10000}"#).await;
        scene.says("greedy", "main", "CUDA_ERROR_OUT_OF_MEMORY").await;
        let (greedy, neighbour) = (scene.device_of("greedy").await, scene.device_of("neighbour").await);
        assert_eq!(greedy, neighbour, "the same card, with the same limits");
        assert_eq!(greedy.memory_limit_mib, Some(10 << 10));
        assert_eq!(greedy.multiprocessors, Some(40));
        // The pod has ended although its object still exists, and so has its share. The neighbour's program runs on.
        scene.ready("neighbour").await;
        assert_eq!(scene.another_in("neighbour", "main", &["--allocate-mib", "10000"]).await, neighbour);
        scene.delete_pods(&["greedy", "neighbour"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_eight_processes_fit_and_the_next_waits_for_the_scheduler() {
    play("forty_eight_processes_fit_and_the_next_waits_for_the_scheduler", async |scene| {
        scene.template("seven", &[cards("cards", 7)]).await;
        scene.pod_from_template("seven", "seven").await;
        let dozen = json!({"memory": "12Gi", "compute": "24", "clients": "12"});
        scene.template("dozen", &[share("share", &dozen)]).await;
        scene.template("one", &[share("share", &json!({"memory": "1Gi", "compute": "1"}))]).await;
        let pods = ["a", "b", "c", "d"];
        scene.ready("seven").await;
        for pod in pods {
            scene.program_from_template(pod, "dozen", &["--processes", "12", "--hold"]).await;
        }
        for pod in pods {
            for device in scene.devices_of(pod, "main", 12).await {
                assert_eq!((device.memory_limit_mib, device.active_thread_percentage), (Some(1 << 10), 2.0));
            }
        }
        // Memory and compute are left, but no clients.
        scene.program_from_template("late", "one", &["--hold"]).await;
        scene.unschedulable("late").await;
        // A container can start more programs than it declared, up to the card's own limit.
        let one_more = scene.run_in("a", "main", &[]).await;
        assert!(one_more.stdout.contains("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"), "{one_more:?}");
        scene.delete_pod("a").await;
        scene.ready("late").await;
        assert_eq!(scene.device_of("late").await.memory_limit_mib, Some(1 << 10));
        scene.delete_pods(&["b", "c", "d", "late", "seven"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_card_is_nobody_elses_until_its_last_share_has_gone() {
    play("a_shared_card_is_nobody_elses_until_its_last_share_has_gone", async |scene| {
        scene.template("seven", &[cards("cards", 7)]).await;
        scene.template("share", &[share("share", &json!({}))]).await;
        scene.template("whole", &[cards("card", 1)]).await;
        scene.template("partition", &[partition("partition", "1g.10gb")]).await;
        scene.template("turn", &[time_slice("turn")]).await;
        scene.pod_from_template("seven", "seven").await;
        scene.ready("seven").await;
        for pod in ["first", "second"] {
            scene.program_from_template(pod, "share", &["--hold"]).await;
            scene.ready(pod).await;
        }
        let shared = scene.device_of("first").await;
        assert_eq!(shared.device, scene.device_of("second").await.device);
        for other in ["partition", "turn", "whole"] {
            scene.program_from_template(other, other, &["--hold"]).await;
            scene.unschedulable(other).await;
        }
        scene.delete_pods(&["partition", "turn", "first"]).await;
        assert_eq!(scene.stage.daemons().await.len(), 1, "the second share keeps it");
        assert!(scene.pods().await.get("whole").await.unwrap().spec.unwrap().node_name.is_none());
        scene.delete_pod("second").await;
        scene.ready("whole").await;
        let whole = scene.device_of("whole").await;
        assert_eq!(whole.device, shared.device);
        assert_eq!(
            (whole.mps_server, whole.memory_limit_mib, whole.multiprocessors),
            (None, None, Some(132))
        );
        assert_eq!(scene.stage.card_use(&whole.device).compute_mode, 0);
        assert!(scene.stage.daemons().await.is_empty());
        // And the other way round.
        scene.program_from_template("first", "share", &["--hold"]).await;
        scene.unschedulable("first").await;
        scene.delete_pods(&["first", "whole", "seven"]).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_partitions_of_a_card_are_shared_by_two_pods_each() {
    play("two_partitions_of_a_card_are_shared_by_two_pods_each", async |scene| {
        scene.template("seven", &[cards("cards", 7)]).await;
        let half = share_of_partition("share", "3g.40gb", &json!({"memory": "19Gi", "compute": "50"}));
        scene.template("half", &[half]).await;
        scene.pod_from_template("seven", "seven").await;
        scene.ready("seven").await;
        let pods = ["a", "b", "c", "d"];
        for pod in pods {
            scene.program_from_template(pod, "half", &["--allocate-mib", "19000", "--hold"]).await;
        }
        let mut of_partition: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for pod in pods {
            scene.ready(pod).await;
            scene.says(pod, "main", r#"{"holdsMiB":19000}"#).await;
            let device = scene.device_of(pod).await;
            assert!(device.device.starts_with("MIG-") && device.mps_server.is_some(), "{device:?}");
            // 60 multiprocessors for a 3g.40gb.
            assert_eq!((device.memory_limit_mib, device.multiprocessors), (Some(19 << 10), Some(30)));
            of_partition.entry(device.device).or_default().push(pod);
        }
        assert!(
            of_partition.len() == 2 && of_partition.values().all(|pods| pods.len() == 2),
            "{of_partition:?}"
        );
        let daemons = scene.stage.daemons().await;
        let servers: BTreeSet<&str> = daemons.iter().map(|daemon| daemon.device.as_str()).collect();
        assert_eq!(servers, of_partition.keys().map(String::as_str).collect());
        let divided: Vec<_> = scene.stage.mig().into_iter().filter(|card| card.enabled).collect();
        assert_eq!(divided.iter().map(|card| card.instances.len()).collect::<Vec<_>>(), [2]);

        // A partition goes with its last share, the card becomes whole with its last partition.
        let first = of_partition.values().next().unwrap().clone();
        scene.delete_pods(&first).await;
        assert_eq!(scene.stage.daemons().await.len(), 1);
        assert_eq!(scene.stage.mig().iter().map(|card| card.instances.len()).sum::<usize>(), 1);
        let others: Vec<&str> = pods.into_iter().filter(|pod| !first.contains(pod)).collect();
        scene.ready(others[0]).await;
        scene.delete_pods(&[&others[..], &["seven"]].concat()).await;
        scene.stage.nothing_is_shared().await;
    })
    .await;
}
