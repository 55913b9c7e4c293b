//! Queue order, and devices available meanwhile to pods further back.

use serde_json::{Value, json};
use tessera_cluster::Object;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::member;
use crate::leader::leader;
use crate::objects::*;

/// A leader over nodes in a pool with this placement.
pub fn with_placement(nodes: &[(&str, usize)], placement: Value) -> Fed {
    let mut fed = leader(nodes);
    let pool = json!({ "pool": "main", "allocation": "Managed", "placement": placement });
    for (name, cards) in nodes {
        slices(name, *cards, pool.clone()).into_iter().for_each(|slice: Object| fed.apply(slice));
    }
    fed
}

/// A leader over a node with three cards, one of them held by a pod.
fn with_one_held(placement: Value) -> Fed {
    let mut fed = with_placement(&[("a", 3)], placement);
    ask_at(&mut fed, "runs", 1, 5, |_| {});
    let intents = fed.decide();
    fed.written(&intents);
    fed.bound(pod("runs"), "a");
    fed
}

pub fn at(second: u64) -> Value {
    json!(k8s_openapi::jiff::Timestamp::from_second(second as i64).unwrap().to_string())
}

/// Adds a pod with `cards` cards, created at `second`.
pub fn ask_at(fed: &mut Fed, name: &str, cards: usize, second: u64, change: impl FnOnce(&mut Value)) {
    fed.versioned(name, "gpu", cards, 5);
    let mut pod = pod(name);
    pod["metadata"]["creationTimestamp"] = at(second);
    change(&mut pod);
    fed.apply_pod(pod);
}

pub fn allocated_to(intents: &[Intent]) -> Vec<&str> {
    let allocated = intents.iter().filter_map(|intent| match intent {
        Intent::Allocate { pod, .. } => Some(pod.key.name.as_str()),
        _ => None,
    });
    allocated.collect()
}

pub fn who(fed: &mut Fed) -> Vec<String> {
    fed.allocates().into_iter().map(|(pod, ..)| pod).collect()
}

#[test]
fn small_pods_pass_a_large_one_unless_the_queue_is_strict() {
    for (placement, expected) in [(json!({}), vec!["small"]), (json!({ "queue": "Strict" }), vec![])] {
        let mut fed = with_one_held(placement);
        ask_at(&mut fed, "large", 3, 10, |_| {});
        ask_at(&mut fed, "small", 1, 20, |_| {});
        assert_eq!(who(&mut fed), expected);
        // A later single pod is held up, too.
        ask_at(&mut fed, "later", 1, 30, |_| {});
        let later: Vec<&str> = if expected.is_empty() { vec![] } else { vec!["later"] };
        assert_eq!(who(&mut fed), later);
    }
}

#[test]
fn a_higher_priority_goes_before_the_head_of_a_strict_queue() {
    let mut fed = with_one_held(strict());
    ask_at(&mut fed, "large", 3, 10, |_| {});
    ask_at(&mut fed, "urgent", 1, 20, |pod| pod["spec"]["priority"] = json!(1));
    assert_eq!(who(&mut fed), ["urgent"]);
}

#[test]
fn when_the_head_of_a_strict_queue_goes_the_others_go_on() {
    let mut fed = with_one_held(strict());
    ask_at(&mut fed, "large", 3, 10, |_| {});
    ask_at(&mut fed, "small", 1, 20, |_| {});
    assert_eq!(who(&mut fed), [""; 0]);
    fed.delete(tessera_cluster::Kind::Pod, "large");
    assert_eq!(who(&mut fed), ["small"]);
}

/// Where the whole fleet is in the strict pool, the pod is not examined again. A new node of another pool is noticed all the same.
#[test]
fn who_is_behind_in_a_strict_queue_is_told_so_and_gets_a_card_of_another_pool() {
    let mut fed = with_one_held(strict());
    ask_at(&mut fed, "large", 3, 10, |_| {});
    ask_at(&mut fed, "small", 1, 20, |_| {});
    assert_eq!(who(&mut fed), [""; 0]);
    fed.apply(labelled("a", json!({ "changed": "yes" })));
    assert_eq!(who(&mut fed), [""; 0]);
    let why =
        fed.decider.waiting().find(|(waiting, _)| **waiting == key("small")).map(|(_, why)| why.to_owned());
    assert!(why.as_ref().is_some_and(|why| why.contains("whose queue is strict")), "{why:?}");
    fed.apply(node("b"));
    let other = json!({ "pool": "other", "allocation": "Managed" });
    slices("b", 1, other).into_iter().for_each(|slice| fed.apply(slice));
    fed.now += Time::from_secs(61);
    fed.decide();
    fed.listed();
    assert_eq!(who(&mut fed), ["small"]);
}

/// A pod with its claim allocated by somebody else needs no card. A changed pod is examined even behind others.
#[test]
fn who_is_behind_is_looked_at_when_its_own_claim_changes() {
    let mut fed = with_one_held(strict());
    ask_at(&mut fed, "large", 3, 10, |_| {});
    ask_at(&mut fed, "small", 1, 20, |_| {});
    assert_eq!(fed.decide().iter().filter(|intent| !matches!(intent, Intent::Tell { .. })).count(), 0);
    let mut claim = allocated(claim("small", "gpu", 1), "a", &[card(0)]);
    claim["metadata"]["resourceVersion"] = json!("6");
    fed.apply_claim(claim);
    let intents = fed.decide();
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Steer { pod, .. } | Intent::Release { pod, .. }
            | Intent::Allocate { pod, .. } if pod.key.name == "small")),
        "{intents:?}"
    );
}

/// A gang of two pods of two cards over two nodes. One node has a card in use until `ends`.
pub fn waiting_gang(ends: Option<u64>) -> Fed {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    fed.versioned("runs", "gpu", 1, 5);
    fed.apply_pod(pod("runs"));
    let intents = fed.decide();
    fed.written(&intents);
    let Some(Intent::Allocate { node, .. }) = intents.first() else { panic!("{intents:?}") };
    let mut running = pod("runs");
    running["spec"]["activeDeadlineSeconds"] = json!(ends.map(|ends| ends - 1_000));
    running["status"] = json!({ "phase": "Running", "startTime": at(1_000) });
    running["status"]["resourceClaimStatuses"] =
        json!([{ "name": "gpus", "resourceClaimName": "runs-gpus" }]);
    fed.bound(running, node);
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 2, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(1_000);
        fed.apply_pod(pod);
    }
    fed.decide();
    fed
}

#[test]
fn nodes_are_kept_for_a_gang_that_has_waited_for_ten_minutes() {
    let mut fed = waiting_gang(None);
    ask_at(&mut fed, "early", 1, 1_500, |_| {});
    assert_eq!(who(&mut fed), ["early"]);
    fed.now = Time::from_secs(1_601);
    assert!(fed.decider.wake().is_some_and(|wake| wake <= fed.now));
    fed.decide();
    ask_at(&mut fed, "late", 1, 1_602, |_| {});
    assert_eq!(who(&mut fed), [""; 0]);
    let why: Vec<String> = fed.decider.waiting().map(|(key, why)| format!("{}: {why}", key.name)).collect();
    assert!(
        why.iter().any(|why| why.contains("late") && why.contains("kept for pods that go first")),
        "{why:?}"
    );
    assert!(why.iter().any(|why| why.contains("train-0") && why.contains("nodes kept for it: 2")), "{why:?}");
    // A pod of higher priority may use the kept nodes.
    ask_at(&mut fed, "urgent", 1, 1_603, |pod| pod["spec"]["priority"] = json!(1));
    assert_eq!(who(&mut fed), ["urgent"]);
}

/// Also during a full pass, before the gang's turn.
#[test]
fn what_is_kept_for_a_gang_is_kept_from_who_came_before_it_too() {
    let mut fed = waiting_gang(None);
    fed.now = Time::from_secs(1_601);
    fed.decide();
    ask_at(&mut fed, "older", 1, 900, |_| {});
    fed.apply(node("c"));
    assert_eq!(who(&mut fed), [""; 0]);
    // The gang waits no longer.
    fed.delete(tessera_cluster::Kind::Pod, "train-0");
    fed.delete(tessera_cluster::Kind::Pod, "train-1");
    assert_eq!(who(&mut fed), ["older"]);
}

/// Also while other pods make room for the gang.
#[test]
fn nobody_passes_a_gang_at_the_head_of_a_strict_queue_that_preempts() {
    let mut fed = with_placement(&[("a", 2), ("b", 1)], json!({ "queue": "Strict" }));
    ask_at(&mut fed, "low", 1, 5, |pod| {
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "a" })
    });
    let intents = fed.decide();
    fed.written(&intents);
    let low = serde_json::to_value(fed.decider.cluster().objects().pods[&key("low")].as_ref()).unwrap();
    fed.bound(low, "a");
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 2 - number, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(10);
        pod["spec"]["priority"] = json!(10);
        pod["spec"]["nodeSelector"] =
            json!({ "kubernetes.io/hostname": if number == 0 { "a" } else { "b" } });
        fed.apply_pod(pod);
    }
    let intents = fed.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Nominate { .. })), "{intents:?}");
    fed.apply(node("c"));
    for slice in
        slices("c", 1, json!({ "pool": "main", "allocation": "Managed", "placement": { "queue": "Strict" } }))
    {
        fed.apply(slice);
    }
    ask_at(&mut fed, "small", 1, 20, |_| {});
    assert_eq!(who(&mut fed), [""; 0]);
}

#[test]
fn who_ends_before_the_gang_could_begin_may_use_its_nodes() {
    let mut fed = waiting_gang(Some(3_000));
    fed.now = Time::from_secs(2_000);
    fed.decide();
    ask_at(&mut fed, "long", 1, 2_000, |pod| pod["spec"]["activeDeadlineSeconds"] = json!(1_001));
    assert_eq!(who(&mut fed), [""; 0]);
    ask_at(&mut fed, "short", 1, 2_000, |pod| pod["spec"]["activeDeadlineSeconds"] = json!(999));
    assert_eq!(who(&mut fed), ["short"]);
}

#[test]
fn a_gang_that_is_too_large_for_its_pools_is_told_at_once() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    fed.gang("train", 3, 2);
    let intents = fed.decide();
    let [Intent::Tell { message, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert!(message.contains("never had more than would be enough for 2 of 3 pods"), "{message}");
}

pub fn strict() -> Value {
    json!({ "queue": "Strict" })
}

/// A gang of pods with two cards each, and a small pod behind it, over two nodes with two cards in a strict queue.
fn small_behind(size: usize, change: impl Fn(&mut Value)) -> Fed {
    let mut fed = with_placement(&[("a", 2), ("b", 2)], strict());
    for number in 0..size {
        fed.versioned(&format!("train-{number}"), "gpu", 2, 5);
        let mut pod = member("train", number, size);
        pod["metadata"]["creationTimestamp"] = at(10);
        change(&mut pod);
        fed.apply_pod(pod);
    }
    ask_at(&mut fed, "small", 1, 20, |_| {});
    fed
}

/// Otherwise the gang would block the whole queue for ever.
#[test]
fn a_gang_that_is_too_large_keeps_nobody_from_a_strict_queue_until_the_pool_grows() {
    let mut fed = small_behind(3, |_| {});
    let intents = fed.decide();
    let told = intents.iter().find_map(|intent| match intent {
        Intent::Tell { message, .. } => Some(message.as_str()),
        _ => None,
    });
    assert!(told.is_some_and(|told| told.contains("the gang is too large")), "{intents:?}");
    assert_eq!(allocated_to(&intents), ["small"]);
    fed.written(&intents);
    let small = serde_json::to_value(fed.decider.cluster().objects().pods[&key("small")].as_ref()).unwrap();
    let Some(Intent::Allocate { node: taken, .. }) =
        intents.iter().find(|intent| matches!(intent, Intent::Allocate { .. }))
    else {
        panic!("{intents:?}")
    };
    fed.bound(small, taken);
    // With a third node the gang would have room if `small` were gone, so its turn comes first again.
    fed.apply(node("c"));
    let pool = json!({ "pool": "main", "allocation": "Managed", "placement": strict() });
    slices("c", 2, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed.now += Time::from_secs(61);
    fed.decide();
    fed.listed();
    ask_at(&mut fed, "later", 1, 90, |_| {});
    assert_eq!(who(&mut fed), [""; 0]);
    // Also while the node is gone for a time.
    fed.delete(tessera_cluster::Kind::Node, "c");
    assert_eq!(who(&mut fed), [""; 0]);
}

/// Other resources of a node count, too.
#[test]
fn a_gang_is_too_large_for_want_of_processors() {
    let mut fed = small_behind(2, |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("9");
    });
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), ["small"]);
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Tell { message, .. }
        if message.contains("enough for 0 of 2 pods"))),
        "{intents:?}"
    );
}

/// The node of the only allocation.
fn node_given(intents: &[Intent]) -> String {
    let mut nodes = intents.iter().filter_map(|intent| match intent {
        Intent::Allocate { node, .. } => Some(node.clone()),
        _ => None,
    });
    nodes.next().expect("an allocation")
}

/// A rule the controller does not foresee excludes the pod from node after node, as required affinity to a pod that does not exist.
#[test]
fn a_pod_refused_by_node_after_node_keeps_nobody_from_a_strict_queue() {
    let nodes = ["a", "b", "c", "d", "e", "f"].map(|name| (name, 1));
    let mut fed = with_placement(&nodes, strict());
    for number in 0..2 {
        let name = format!("runs-{number}");
        ask_at(&mut fed, &name, 1, 5, |_| {});
        let intents = fed.decide();
        fed.written(&intents);
        fed.bound(pod(&name), &node_given(&intents));
    }
    ask_at(&mut fed, "nowhere", 1, 10, |pod| pod["spec"]["schedulingGates"] = json!([]));
    let mut refusing = Vec::new();
    for number in 0..4 {
        let intents = fed.decide();
        assert_eq!(allocated_to(&intents), ["nowhere"], "{number}");
        fed.written(&intents);
        refusing.push(node_given(&intents));
        let mut refused =
            serde_json::to_value(fed.decider.cluster().objects().pods[&key("nowhere")].as_ref()).unwrap();
        refused["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": format!("{number}: didn't match pod affinity rules") }]);
        fed.apply_pod(refused);
        fed.now += Time::from_secs(6);
        let intents = fed.decide();
        assert!(intents.iter().any(|intent| matches!(intent, Intent::Clear { .. })), "{intents:?}");
        fed.versioned("nowhere", "gpu", 1, 9 + number);
        let claims = vec![key("nowhere-gpus")];
        fed.decider.observe(fed.now, Observation::ClaimsWritten { claims, is_done: true }).unwrap();
    }
    // All nodes that refused it are in use, and those that did not, too: it waits for one of them.
    for number in 0..refusing.len() {
        let name = format!("more-{number}");
        ask_at(&mut fed, &name, 1, 20, |_| {});
        let intents = fed.decide();
        assert_eq!(allocated_to(&intents), std::slice::from_ref(&name));
        fed.written(&intents);
        let node = node_given(&intents);
        assert!(refusing.contains(&node), "{node}");
        fed.bound(pod(&name), &node);
    }
    fed.decide();
    fed.delete(tessera_cluster::Kind::Pod, "more-0");
    fed.delete(tessera_cluster::Kind::ResourceClaim, "more-0-gpus");
    ask_at(&mut fed, "small", 1, 30, |_| {});
    assert_eq!(who(&mut fed), ["small"]);
}

#[test]
fn a_pod_that_no_node_could_take_keeps_nobody_from_a_strict_queue() {
    let mut fed = with_placement(&[("a", 2)], strict());
    ask_at(&mut fed, "large", 3, 10, |_| {});
    ask_at(&mut fed, "small", 1, 20, |_| {});
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), ["small"]);
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Tell { message, .. }
        if message.contains("no node could take it if it were empty: others pass it"))),
        "{intents:?}"
    );
}
