//! Reservations of nodes for gangs end, whatever becomes of the nodes.

use serde_json::{Value, json};
use tessera_decide::Time;

use crate::gangs::member;
use crate::gangs::queue::{ask_at, at, waiting_gang, who, with_placement};
use crate::objects::*;

/// The wait reason of the pod.
fn why(fed: &Fed, pod: &str) -> String {
    fed.decider.reason_of(&key(pod)).map(ToString::to_string).unwrap_or_default()
}

/// A gang of two pods created at second 1,000, with these numbers of cards, all on node a.
fn gang_on_a(fed: &mut Fed, cards: [usize; 2]) {
    for (number, cards) in cards.into_iter().enumerate() {
        fed.versioned(&format!("train-{number}"), "gpu", cards, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(1_000);
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "a" });
        fed.apply_pod(pod);
    }
}

/// Lets time pass until the next time the loop asks for.
fn wake(fed: &mut Fed) {
    fed.now = fed.decider.wake().expect("somebody waits");
}

/// One pod that never ends would idle all other cards for ever.
#[test]
fn nodes_are_kept_for_a_day_where_no_holder_ends() {
    let mut fed = waiting_gang(None);
    fed.now = Time::from_secs(1_601);
    fed.decide();
    ask_at(&mut fed, "late", 1, 1_602, |_| {});
    fed.now = Time::from_secs(88_000);
    assert_eq!(who(&mut fed), [""; 0]);
    wake(&mut fed);
    assert_eq!(fed.now, Time::from_secs(88_001));
    assert_eq!(who(&mut fed), ["late"]);
    assert!(
        why(&fed, "train-0").contains("no nodes are kept for it for 240 min"),
        "{}",
        why(&fed, "train-0")
    );
    // Kept again four hours later, and then not for eight.
    fed.now = Time::from_secs(102_401);
    fed.decide();
    assert!(why(&fed, "train-0").contains("nodes kept for it: 2"), "{}", why(&fed, "train-0"));
    fed.now = Time::from_secs(188_801);
    fed.decide();
    assert!(why(&fed, "train-0").contains("kept for it for 480 min"), "{}", why(&fed, "train-0"));
}

#[test]
fn pods_that_end_soon_may_use_nodes_nobody_knows_the_end_of() {
    let mut fed = waiting_gang(None);
    fed.now = Time::from_secs(1_601);
    fed.decide();
    let deadline =
        |seconds: u32| move |pod: &mut Value| pod["spec"]["activeDeadlineSeconds"] = json!(seconds);
    ask_at(&mut fed, "long", 1, 1_602, deadline(601));
    assert_eq!(who(&mut fed), [""; 0]);
    ask_at(&mut fed, "short", 1, 1_602, deadline(600));
    assert_eq!(who(&mut fed), ["short"]);
}

/// Cards are free, but a pod without cards takes the processors.
#[test]
fn no_node_is_kept_whose_free_cards_are_of_no_use() {
    let mut fed = with_placement(&[("a", 2), ("b", 2)], json!({}));
    let mut other = pod("other");
    other["spec"] = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }],
        "nodeName": "a" });
    fed.apply_pod(other);
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 2, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(1_000);
        fed.apply_pod(pod);
    }
    fed.decide();
    fed.now = Time::from_secs(1_601);
    fed.decide();
    assert!(why(&fed, "train-0").contains("pods without cards are in its way"), "{}", why(&fed, "train-0"));
    ask_at(&mut fed, "late", 1, 1_602, |_| {});
    assert_eq!(who(&mut fed), ["late"]);
}

/// One pod of the gang is enough, and the largest is not the only one, so none of the largest has to fit.
#[test]
fn no_reservation_is_made_without_a_node() {
    let mut fed = with_placement(&[("a", 2)], json!({}));
    let mut other = pod("other");
    other["spec"] = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }],
        "nodeName": "a" });
    fed.apply_pod(other);
    for (number, cards) in [(0, 2), (1, 1)] {
        fed.versioned(&format!("train-{number}"), "gpu", cards, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(1_000);
        pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("1");
        fed.apply_pod(pod);
    }
    fed.decide();
    fed.now = Time::from_secs(1_601);
    fed.decide();
    assert!(why(&fed, "train-0").contains("no nodes are kept for it"), "{}", why(&fed, "train-0"));
}

/// Each pod of the gang fits, and together they never do.
#[test]
fn what_is_kept_is_for_others_once_it_is_free_and_the_gang_does_not_fit() {
    for placement in [json!({}), json!({ "queue": "Strict" })] {
        let mut fed = with_placement(&[("a", 2)], placement);
        gang_on_a(&mut fed, [2, 1]);
        fed.decide();
        fed.now = Time::from_secs(1_601);
        fed.decide();
        assert!(why(&fed, "train-0").contains("nodes kept for it: 1"), "{}", why(&fed, "train-0"));
        ask_at(&mut fed, "late", 1, 1_602, |_| {});
        assert_eq!(who(&mut fed), [""; 0]);
        wake(&mut fed);
        assert_eq!(fed.now, Time::from_secs(1_661));
        assert_eq!(who(&mut fed), ["late"]);
        let why = why(&fed, "train-0");
        assert!(why.contains("did not fit all the same; others pass it"), "{why}");
    }
}
