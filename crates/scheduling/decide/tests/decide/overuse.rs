//! Pods that hold more memory than their part of a card.

use serde_json::{Value, json};
use tessera_decide::{Intent, Observation, Time};

use crate::leader::{leader, ungated};
use crate::objects::*;

/// A leader over one node, whose pool says this of claims above their part.
fn pool(allocation: &str, on_overuse: &str) -> Fed {
    let mut fed = leader(&[]);
    fed.apply(node("a"));
    let pool = json!({ "pool": "main", "allocation": allocation, "onOveruse": on_overuse });
    slices("a", 4, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed.decide();
    fed.listed();
    fed
}

/// A running pod of a Deployment, whose claim has this condition.
fn held(fed: &mut Fed, pod: &str, number: usize, status: &str, reason: &str) {
    let mut running = ungated(pod);
    running["spec"]["schedulingGates"] = json!([]);
    running["spec"]["nodeName"] = json!("a");
    running["status"]["phase"] = json!("Running");
    running["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": true }]);
    fed.apply_pod(running);
    let device = card(number);
    let mut held = allocated(claim(pod, "gpu", 1), "a", std::slice::from_ref(&device));
    held["status"]["devices"] = json!([{ "driver": DRIVER, "pool": format!("{DRIVER}/a"), "device": device, "conditions": [
        { "type": "MemoryOveruse", "status": status, "reason": reason, "message": "its programs hold 30 MiB",
          "lastTransitionTime": "2026-01-01T00:00:00Z" }] }]);
    held["status"]["reservedFor"] = json!([{ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }]);
    fed.apply_claim(held);
}

/// The evicted pods, with the reasons.
fn evicted(fed: &mut Fed) -> Vec<(String, String)> {
    let evicted = |intent| match intent {
        Intent::Evict { pod, why } => Some((pod.key.name, why)),
        _ => None,
    };
    fed.decide().into_iter().filter_map(evicted).collect()
}

#[test]
fn the_pod_of_a_claim_that_endangers_others_is_evicted_whatever_owns_it() {
    for allocation in ["Managed", "Native"] {
        let mut fed = pool(allocation, "Evict");
        held(&mut fed, "p", 0, "True", "EndangersNeighbours");
        let evicted = evicted(&mut fed);
        assert_eq!(evicted.len(), 1, "{allocation}");
        assert!(
            evicted[0].0 == "p" && evicted[0].1.contains("claim p-gpus: its programs hold 30 MiB"),
            "{evicted:?}"
        );
    }
}

#[test]
fn only_who_endangers_others_goes_and_only_where_the_pool_says_so() {
    for (on_overuse, status, reason) in [
        ("Tell", "True", "EndangersNeighbours"),
        ("Evict", "True", "AboveItsPart"),
        ("Evict", "False", "EndangersNeighbours"),
        ("Evict", "False", "WithinItsPart"),
    ] {
        let mut fed = pool("Managed", on_overuse);
        held(&mut fed, "p", 0, status, reason);
        assert_eq!(evicted(&mut fed), [], "{on_overuse} {status} {reason}");
    }
}

#[test]
fn the_words_of_a_former_allocation_evict_nobody() {
    let mut fed = pool("Managed", "Evict");
    held(&mut fed, "p", 0, "True", "AboveItsPart");
    let key = tessera_cluster::Key::new("team", "p-gpus");
    let claim = fed.decider.cluster().objects().claims[&key].clone();
    let mut claim: Value = serde_json::to_value(claim.as_ref()).unwrap();
    claim["status"]["devices"][0]["conditions"][0]["reason"] = json!("EndangersNeighbours");
    claim["status"]["devices"][0]["device"] = json!(card(1));
    fed.apply_claim(claim);
    assert_eq!(evicted(&mut fed), []);
}

#[test]
fn a_refused_eviction_is_sent_again_later_while_the_danger_lasts() {
    let mut fed = pool("Managed", "Evict");
    held(&mut fed, "p", 0, "True", "EndangersNeighbours");
    let intents = fed.decide();
    let sent = intents.iter().find_map(|intent| match intent {
        Intent::Evict { pod, .. } => Some(pod.clone()),
        _ => None,
    });
    fed.decider.observe(fed.now, Observation::Evicted { pod: sent.unwrap(), is_done: false }).unwrap();
    fed.now += Time::from_secs(30);
    assert_eq!(evicted(&mut fed), []);
    assert!(fed.decider.wake().unwrap() <= fed.now + Time::from_secs(30));
    fed.now += Time::from_secs(30);
    assert_eq!(evicted(&mut fed).len(), 1);
    held(&mut fed, "p", 0, "True", "AboveItsPart");
    fed.now += Time::from_secs(600);
    assert_eq!(evicted(&mut fed), []);
    fed.decider.follow();
    held(&mut fed, "p", 0, "True", "EndangersNeighbours");
    assert_eq!(evicted(&mut fed), [], "without leading");
}
