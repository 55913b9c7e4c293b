//! The fleet of `docs/fleet.md`, with the same files that the page shows: ten cards on three nodes, whole, in sevenths
//! and time-sliced, for 54 pods. Control plane, scheduler and the plugin on each node are the real programs; cards are
//! emulated.
// Clippy sees tests only in functions with #[test], not in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod expect;
mod fleet;

use std::collections::{BTreeMap, BTreeSet};

use fleet::Fleet;
use tessera_harness::workspace;

#[tokio::test(flavor = "multi_thread")]
async fn ten_cards_for_54_pods() {
    let fleet = Fleet::start().await;
    let before = fleet.states();
    assert_eq!(fleet.published("node-a").await, 4, "whole cards and nothing else");
    assert_eq!(fleet.published("node-b").await, 21, "seven partitions of each card and nothing else");
    assert_eq!(fleet.published("node-c").await, 3, "a device of many shares for each card");

    for file in fleet::MANIFESTS {
        fleet.apply(file).await;
    }
    fleet.until_running(54, 0).await;
    let grants = fleet.grants().await;
    assert_eq!(grants.len(), 54, "a claim for each pod, allocated one device");
    let by_node = expect::by_node(&grants);
    let counts: BTreeMap<&str, usize> = by_node.iter().map(|(node, grants)| (*node, grants.len())).collect();
    assert_eq!(counts, BTreeMap::from([("node-a", 4), ("node-b", 20), ("node-c", 30)]));
    for grant in &by_node["node-a"] {
        assert!(grant.pod.starts_with("training-"), "{grant:?}");
    }
    expect::distinct(&by_node["node-a"]);
    expect::distinct(&by_node["node-b"]);
    expect::at_most_a_card(&by_node["node-c"], 10);

    // The nodes have made what the scheduler allocated, on the hardware and for the container runtime.
    for node in &fleet.nodes {
        let given: BTreeSet<&str> =
            by_node[node.name()].iter().map(|grant| grant.claim_uid.as_str()).collect();
        expect::prepared(node, &fleet.pods_of(node.name()).prepared(), &by_node[node.name()]);
        assert_eq!(given.len(), node.journal("claims").unwrap().len());
        assert_eq!(fleet.pods_of(node.name()).failures(), [""; 0]);
    }
    let cards = fleet.cards("node-b");
    let instances: Vec<usize> =
        cards.iter().map(|card| card["mig"]["instances"].as_array().unwrap().len()).collect();
    assert_eq!((cards.len(), instances.iter().sum::<usize>()), (3, 20), "{instances:?}");
    assert!(fleet.cards("node-c").iter().all(|card| card["timeSlice"] == 1 && card["computeMode"] == 0));

    // One more of each kind: one partition is left, and nothing else.
    fleet.scale("deployment/inference", 21).await;
    fleet.until_running(55, 0).await;
    fleet.scale("deployment/inference", 22).await;
    fleet.scale("statefulset/notebook", 31).await;
    fleet.one_more_training_pod().await;
    fleet.until_unschedulable(3).await;
    assert_eq!(fleet.grants().await.len(), 55);

    // One pod ends, another gets its place.
    fleet.scale("statefulset/notebook", 20).await;
    fleet.scale("statefulset/notebook", 30).await;
    fleet.scale("deployment/inference", 20).await;
    fleet.until_running(54, 1).await;
    expect::at_most_a_card(&expect::by_node(&fleet.grants().await)["node-c"], 10);

    fleet.delete_all().await;
    assert_eq!(fleet.states(), before, "every card is as it was before the first pod");
    for node in &fleet.nodes {
        assert_eq!(node.journal("claims").unwrap(), [""; 0], "{}", node.name());
        assert_eq!(node.journal("hardware").unwrap(), [""; 0], "{}", node.name());
        assert_eq!(node.specs().unwrap().len(), 0, "{}", node.name());
        assert_eq!(fleet.pods_of(node.name()).failures(), [""; 0]);
    }
    fleet.end().await;
}

#[test]
fn the_page_shows_the_pools_of_the_file() {
    let read = |name: &str| std::fs::read_to_string(workspace::root().join(name)).unwrap();
    assert!(read("docs/fleet.md").contains(&format!("```yaml\n{}```", read(fleet::POOLS))));
}
