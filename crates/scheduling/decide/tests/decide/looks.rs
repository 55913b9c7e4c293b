//! Pods to examine, actions done only once for them, and messages on them.

use serde_json::json;
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::leader::{leader, ungated};
use crate::objects::*;

fn is_told(intents: &[Intent]) -> bool {
    match intents {
        [] => false,
        [Intent::Tell { .. }] => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reason_is_told_once_and_another_no_sooner_than_after_half_a_minute() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 2);
    assert!(is_told(&fed.decide()));
    let more = |fed: &mut Fed, name: &str| {
        fed.apply(node(name));
        slices(name, 1, steered()).into_iter().for_each(|slice| fed.apply(slice));
    };
    fed.now += Time::from_secs(31);
    fed.apply(labelled("a", json!({ "changed": "yes" })));
    assert!(!is_told(&fed.decide()), "the same");
    more(&mut fed, "b");
    assert!(is_told(&fed.decide()), "of two nodes");
    fed.now += Time::from_secs(29);
    more(&mut fed, "c");
    assert!(!is_told(&fed.decide()), "so soon");
    assert_eq!(fed.decider.wake(), Some(fed.now + Time::from_secs(1)));
    fed.now += Time::from_secs(1);
    assert!(is_told(&fed.decide()), "of three nodes, though nothing changed since");
    assert_eq!(fed.decider.wake(), None);
}

#[test]
fn a_pod_that_is_being_deleted_gets_nothing() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    let mut ending = pod("p");
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    fed.apply_pod(ending);
    assert_eq!(fed.decide(), []);
}

/// The watch may deliver only the second pod.
#[test]
fn a_pod_in_the_place_of_one_on_its_way_is_looked_at_for_itself() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers().len(), 1);
    let mut anew = pod("job");
    anew["metadata"]["uid"] = json!("another");
    fed.apply_pod(anew);
    assert_eq!(fed.steers().len(), 1);
}

/// The acknowledgement arrives before the watch shows the pod without its gate.
#[test]
fn a_gate_that_was_removed_is_not_removed_again() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let mut none = pod("none");
    none["spec"]["resourceClaims"] = json!([]);
    fed.apply_pod(none);
    assert!(matches!(fed.decide().as_slice(), [Intent::Release { .. }]));
    let reference = PodReference { key: key("none"), uid: "uid-none".to_owned() };
    let carried = Observation::Carried { pod: reference, is_done: true, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    assert_eq!(fed.decide(), []);
}

/// One of the pod's claims has devices on a node with none for the other.
#[test]
fn devices_that_are_of_no_use_to_a_pod_are_taken_back() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let mut named = allocated(claim("x", "gpu", 1), "a", &[card(0)]);
    named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4",
        "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
    fed.apply_claim(named);
    fed.versioned("p", "gpu", 1, 6);
    let mut pod = ungated("p");
    pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "named" },
        { "name": "own", "resourceClaimName": "p-gpus" }]);
    fed.apply_pod(pod);
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Clear { claims, .. }, ..] if claims[0].key == key("named")),
        "{intents:?}"
    );
}

#[test]
fn a_gang_whose_claim_cannot_be_changed_waits_and_says_so() {
    let mut fed = leader(&[("a", 2)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    let Some(Intent::Allocate { pod, claims, .. }) = intents.first() else { panic!("{intents:?}") };
    let refused = Observation::ClaimRefused {
        claim: claims[0].claim.clone(),
        pod: Some(pod.clone()),
        why: "Too long".to_owned(),
    };
    fed.decider.observe(fed.now, refused).unwrap();
    let carried = Observation::Carried { pod: pod.clone(), is_done: false, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    fed.written(&intents[1..]);
    fed.now += Time::from_secs(31);
    let intents = fed.decide();
    // Its partner gives its devices back.
    assert!(
        matches!(intents.as_slice(), [Intent::Clear { claims, .. }, Intent::Tell { message, .. }]
            if claims[0].key == key("train-1-gpus") && message.contains("Too long")),
        "{intents:?}"
    );
}
