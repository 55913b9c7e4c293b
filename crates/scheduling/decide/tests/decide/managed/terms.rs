//! A term of leadership: its first steps, and the state re-examined by the next leader.

use serde_json::{Value, json};
use tessera_decide::{Intent, Observation, Time, Topic};

use crate::leader::{leader, ungated};
use crate::objects::*;

/// A claim made and named by a user, with the first card, used by no pod.
fn unused() -> Value {
    let mut named = allocated(claim("x", "gpu", 1), "a", &[card(0)]);
    named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4",
        "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
    named
}

/// The pod's claim with the first card, reserved.
fn held(pod: &str) -> Value {
    let mut held = allocated(claim(pod, "gpu", 1), "a", &[card(0)]);
    held["status"]["reservedFor"] = json!([{ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }]);
    held
}

/// This replica leads again. Returns its intents except requests to list claims.
fn lead_anew(fed: &mut Fed, epoch: &str) -> Vec<Intent> {
    fed.decider.follow();
    fed.now += Time::from_secs(1);
    fed.decider.lead(fed.now, epoch);
    let mut intents = fed.decide();
    assert!(intents.contains(&Intent::ListClaims));
    fed.listed();
    intents.extend(fed.decide());
    intents.retain(|intent| *intent != Intent::ListClaims);
    intents
}

/// A pod's claim with an earlier leader's epoch.
fn of_before(fed: &mut Fed, name: &str) {
    let mut old = claim(name, "gpu", 1);
    old["metadata"]["resourceVersion"] = json!("3");
    old["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "before" });
    fed.apply_claim(old);
}

#[test]
fn what_was_being_taken_back_is_taken_back_by_the_next_leader() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_claim(unused());
    assert!(matches!(fed.decide().as_slice(), [Intent::Clear { .. }]));
    assert_eq!(fed.decide(), []);
    assert!(matches!(lead_anew(&mut fed, "two").as_slice(), [Intent::Clear { .. }]));
}

/// The claim was observed while this replica followed.
#[test]
fn a_new_leader_finds_what_nobody_uses_and_what_has_two_owners() {
    let mut fed = leader(&[("a", 2)]);
    fed.decider.follow();
    fed.apply_claim(unused());
    fed.now += Time::from_secs(1);
    fed.decider.lead(fed.now, "two");
    fed.listed();
    assert!(matches!(fed.decide().as_slice(), [Intent::Clear { .. }]));
    let mut fed = leader(&[("a", 1)]);
    ["one", "two"].into_iter().for_each(|pod| fed.apply_claim(held(pod)));
    let is_told = |intents: &[Intent]| matches!(intents, [Intent::Tell { topic: Topic::Overlap, .. }]);
    assert!(is_told(&fed.decide()));
    // Without any change, the claims' pods are told once per term.
    assert!(is_told(&lead_anew(&mut fed, "two")));
    assert_eq!(fed.decide(), []);
}

#[test]
fn who_follows_gives_nothing_and_takes_nothing() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply_claim(unused());
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(ungated("p"));
    fed.decider.follow();
    assert_eq!(fed.decide(), []);
    assert_eq!(fed.decider.wake(), None);
}

#[test]
fn nothing_is_given_before_the_claims_are_listed_in_this_term() {
    let mut fed = leader(&[("a", 1)]);
    fed.now += Time::from_secs(1);
    fed.decider.lead(fed.now, "one");
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    assert_eq!(fed.decide(), [Intent::ListClaims]);
    assert_eq!(fed.decide(), [], "it is asked for once");
    // The response to an earlier request.
    let before = Observation::ClaimsListed { asked_at: fed.now - Time::from_secs(1) };
    fed.decider.observe(fed.now, before).unwrap();
    assert_eq!(fed.decide(), [Intent::ListClaims]);
    fed.listed();
    assert_eq!(fed.allocates().len(), 1);
    // A late response takes nothing back.
    fed.decider.observe(fed.now, Observation::ClaimsListed { asked_at: Time::from_secs(1) }).unwrap();
    assert_eq!(fed.decide(), []);
}

#[test]
fn claims_with_devices_or_at_their_end_need_no_fence() {
    let mut fed = leader(&[("a", 2)]);
    for (name, change) in [("has", "devices"), ("ends", "end"), ("open", "")] {
        let mut old = claim(name, "gpu", 1);
        if change == "devices" {
            old = held(name);
        }
        if change == "end" {
            old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        old["metadata"]["resourceVersion"] = json!("3");
        fed.apply_claim(old);
    }
    let intents = fed.decide();
    let [Intent::Fence { claims, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(claims[0].key, key("open-gpus"));
    assert_eq!(fed.decide(), [], "once");
}

#[test]
fn a_fence_that_failed_is_written_again_after_a_pause_and_nobody_gets_devices_meanwhile() {
    let mut fed = leader(&[("a", 1)]);
    of_before(&mut fed, "p");
    fed.apply_pod(pod("p"));
    let is_fence = |intents: &[Intent]| matches!(intents, [Intent::Fence { .. }]);
    assert!(is_fence(&fed.decide()));
    let written = |is_done| Observation::ClaimsWritten { claims: vec![key("p-gpus")], is_done };
    fed.decider.observe(fed.now, written(false)).unwrap();
    let again = fed.now + Time::from_secs(2);
    assert_eq!(fed.decide(), []);
    assert_eq!(fed.decider.wake(), Some(again));
    fed.now = again;
    assert!(is_fence(&fed.decide()));
    fed.decider.observe(fed.now, written(true)).unwrap();
    assert_eq!(fed.allocates().len(), 1);
}
