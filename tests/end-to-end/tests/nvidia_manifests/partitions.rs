//! MIG partitions.

use std::collections::BTreeSet;

use crate::dcgm::joined;
use crate::stage::{play, text};

#[tokio::test(flavor = "multi_thread")]
async fn four_partitions_of_one_card() {
    play("partitions-of-one-card", async |scene| {
        let mut uuids = BTreeSet::new();
        for container in ["ctr0", "ctr1", "ctr2", "ctr3"] {
            uuids.insert(scene.view("pod", container).await.partition());
        }
        assert_eq!(uuids.len(), 4);
        let allocated = scene.allocated().await;
        let profiles: Vec<String> = allocated.iter().map(|device| text(device, "profile")).collect();
        assert_eq!(profiles, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]);
        let parents: BTreeSet<String> = allocated.iter().map(|device| text(device, "parentUUID")).collect();
        assert_eq!(parents.len(), 1);
        let parent = &scene.stage.cards()[parents.first().unwrap()];
        let instances = parent["mig"]["instances"].as_array().unwrap().len();
        assert!(instances >= 4, "{parent}");
        // dcgm-exporter knows card and profile; which instance of the card it is, nobody knew when it was published. The kubelet
        // tells it of each container all devices of the claim, whichever request of it the container names.
        let of_pods = joined(&scene).await;
        let of_cards: BTreeSet<&str> = of_pods.iter().map(|device| device.card.as_str()).collect();
        assert_eq!(of_cards, parents.iter().map(String::as_str).collect());
        for container in ["ctr0", "ctr1", "ctr2", "ctr3"] {
            let own = of_pods.iter().filter(|device| device.container == container);
            let partitions: Vec<_> = own.map(|device| device.partition.clone().unwrap()).collect();
            let expected: Vec<_> = profiles.iter().map(|profile| (profile.clone(), String::new())).collect();
            assert_eq!(partitions, expected, "{container}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_have_a_partition_each() {
    play("two-partitions", async |scene| {
        assert_ne!(scene.view("pod", "ctr0").await.partition(), scene.view("pod", "ctr1").await.partition());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_two_profiles() {
    play("partition-or-larger", async |scene| {
        scene.view("pod", "ctr").await.partition();
        let allocated = scene.allocated().await;
        assert_eq!(allocated.iter().map(|device| text(device, "profile")).collect::<Vec<_>>(), ["7g.80gb"]);
    })
    .await;
}

/// An admin's own class, like those that NVIDIA's demonstration has for each profile.
#[tokio::test(flavor = "multi_thread")]
async fn the_extended_resource_of_a_profile() {
    play("extended-resource-of-partitions", async |scene| {
        scene.view("pod", "cuda-container").await.partition();
        let allocated = scene.allocated().await;
        assert_eq!(allocated.iter().map(|device| text(device, "profile")).collect::<Vec<_>>(), ["1g.10gb"]);
        let class = ["delete", "deviceclass", "mig-1g-10gb.gpu.nvidia.com"];
        scene.stage.cluster.kubectl(&class).await.unwrap();
    })
    .await;
}
