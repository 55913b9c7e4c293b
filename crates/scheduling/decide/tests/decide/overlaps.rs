//! Two claims on one card.

use serde_json::{Value, json};
use tessera_decide::{Intent, Topic};

use crate::leader::leader;
use crate::objects::*;

/// A pod's claim with these devices since `second`, reserved by the pod or not.
fn held(pod: &str, devices: &[&str], second: i64, is_reserved: bool) -> Value {
    let devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
    let mut held = allocated(claim(pod, "gpu", 1), "a", &devices);
    held["metadata"]["resourceVersion"] = json!("7");
    let time = k8s_openapi::jiff::Timestamp::from_second(second).unwrap();
    held["status"]["allocation"]["allocationTimestamp"] = json!(time.to_string());
    if is_reserved {
        held["status"]["reservedFor"] =
            json!([{ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }]);
    }
    held
}

fn cleared(intents: &[Intent]) -> Vec<&str> {
    let mut names = Vec::new();
    for intent in intents {
        if let Intent::Clear { claims, .. } = intent {
            names.extend(claims.iter().map(|claim| claim.key.name.as_str()));
        }
    }
    names
}

#[test]
fn what_nobody_has_reserved_is_taken_back_though_it_is_older() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply_claim(held("old", &["gpu-01-00"], 10, false));
    fed.apply_claim(held("beside", &["gpu-02-00"], 10, false));
    fed.decide();
    fed.apply_claim(held("new", &["gpu-01-00"], 20, true));
    assert_eq!(cleared(&fed.decide()), ["old-gpus"]);
    assert_eq!(cleared(&fed.decide()), [""; 0], "it is under way");
}

#[test]
fn of_two_that_nobody_has_reserved_the_newer_goes() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_claim(held("new", &["gpu-01-00"], 20, false));
    fed.apply_claim(held("old", &["gpu-01-00-mig-3g40gb-0"], 10, false));
    assert_eq!(cleared(&fed.decide()), ["new-gpus"], "a partition and its card");
}

#[test]
fn of_two_reserved_ones_the_newers_pod_is_told_once() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_claim(held("old", &["gpu-01-00"], 10, true));
    fed.apply_claim(held("new", &["gpu-01-00"], 20, true));
    let intents = fed.decide();
    let [Intent::Tell { pod, topic: Topic::Overlap, message }] = intents.as_slice() else {
        panic!("{intents:?}")
    };
    assert_eq!(pod.key, key("new"));
    assert!(
        message.starts_with("gpu-01-00 of its claim team/new-gpus is also held by another claim"),
        "{message}"
    );
    fed.apply_claim(held("third", &["gpu-01-00-mig-3g40gb-0"], 5, false));
    assert_eq!(cleared(&fed.decide()), ["third-gpus"]);
}

#[test]
fn a_follower_takes_nothing_back_and_the_next_leader_finds_it() {
    let mut fed = leader(&[("a", 1)]);
    fed.decider.follow();
    fed.apply_claim(held("old", &["gpu-01-00"], 10, false));
    fed.apply_claim(held("new", &["gpu-01-00"], 20, false));
    fed.now += tessera_decide::Time::from_secs(20);
    fed.decider.lead(fed.now, "two");
    // The known state may mix objects from before and after a change.
    assert_eq!(fed.decide(), [Intent::ListClaims]);
    fed.listed();
    assert_eq!(cleared(&fed.decide()), ["new-gpus"]);
}
