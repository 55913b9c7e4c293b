//! Which claim gets which card.

use serde_json::json;

use crate::stage::{cards, container, play};

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_get_distinct_cards() {
    play("two_pods_get_distinct_cards", async |scene| {
        scene.template("one", &[cards("card", 1)]).await;
        scene.pod_from_template("first", "one").await;
        scene.pod_from_template("second", "one").await;
        scene.ready("first").await;
        scene.ready("second").await;
        let (first, second) = (scene.view("first", "main").await, scene.view("second", "main").await);
        assert_eq!((first.cards().len(), second.cards().len()), (1, 1));
        assert_ne!(first.cards(), second.cards());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_share_one_claim() {
    play("two_pods_share_one_claim", async |scene| {
        scene.claim("shared", &[cards("card", 1)]).await;
        let claim = json!({"name": "card", "resourceClaimName": "shared"});
        for pod in ["first", "second"] {
            scene.pod(pod, &[container("main", &["card"])], std::slice::from_ref(&claim)).await;
        }
        scene.ready("first").await;
        scene.ready("second").await;
        let (first, second) = (scene.view("first", "main").await, scene.view("second", "main").await);
        assert_eq!(first.cards(), scene.minors("shared").await);
        assert_eq!(first.cards(), second.cards());
        // The card stays prepared for the second pod when the first is gone.
        scene.delete_pod("first").await;
        let again =
            scene.stage.cluster.exec(&scene.namespace, "second", None, &["/bin/ls", "/dev"]).await.unwrap();
        assert!(again.contains(&format!("/dev/nvidia{}\"", second.cards()[0])), "{again}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_share_one_claim_and_their_neighbour_sees_nothing() {
    play("two_containers_share_one_claim_and_their_neighbour_sees_nothing", async |scene| {
        scene.template("one", &[cards("card", 1)]).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "one"});
        let containers = [container("a", &["card"]), container("b", &["card"]), container("neighbour", &[])];
        scene.pod("pod", &containers, &[claim]).await;
        scene.ready("pod").await;
        let (a, b) = (scene.view("pod", "a").await, scene.view("pod", "b").await);
        assert_eq!(a.cards().len(), 1);
        assert_eq!(a.cards(), b.cards());
        let neighbour = scene.view("pod", "neighbour").await;
        let nvidia: Vec<_> = neighbour.devices.iter().filter(|node| node.path.contains("nvidia")).collect();
        assert!(nvidia.is_empty(), "{nvidia:?}");
        assert!(
            !neighbour.environment.keys().any(|name| name.starts_with("GPU_") || name.starts_with("NVIDIA_"))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_container_gets_the_request_it_names() {
    play("each_container_gets_the_request_it_names", async |scene| {
        scene.template("two-requests", &[cards("pair", 2), cards("single", 1)]).await;
        let claim = json!({"name": "card", "resourceClaimTemplateName": "two-requests"});
        let containers = [
            container("pair", &["card/pair"]),
            container("single", &["card/single"]),
            container("all", &["card"]),
        ];
        scene.pod("pod", &containers, &[claim]).await;
        scene.ready("pod").await;
        let pair = scene.view("pod", "pair").await.cards();
        let single = scene.view("pod", "single").await.cards();
        assert_eq!((pair.len(), single.len()), (2, 1));
        let mut both = [pair, single].concat();
        both.sort_unstable();
        both.dedup();
        assert_eq!(scene.view("pod", "all").await.cards(), both);
        assert_eq!(both.len(), 3);
    })
    .await;
}
