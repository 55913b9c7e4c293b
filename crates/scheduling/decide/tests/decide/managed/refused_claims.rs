//! Claims whose changes the API server refuses, for their size or by a policy, hold up nobody else.

use serde_json::json;
use tessera_decide::{ClaimReference, Intent, Observation, PodReference, Time};

use crate::leader::leader;
use crate::objects::*;

const WHY: &str = "metadata.annotations: Too long: may not be more than 262144 bytes";

fn refuse(fed: &mut Fed, claim: &ClaimReference, pod: Option<PodReference>) {
    let (claim, why) = (claim.clone(), WHY.to_owned());
    fed.decider.observe(fed.now, Observation::ClaimRefused { claim, pod, why }).unwrap();
}

fn told(intents: &[Intent], pod: &str) -> bool {
    intents.iter().any(|intent| {
        matches!(intent, Intent::Tell { pod: about, message, .. }
            if about.key.name == pod && message.contains("Too long") && message.contains(&format!("team/{pod}-gpus")))
    })
}

/// A pod's claim from before the term.
fn before_the_term(fed: &mut Fed, name: &str, epoch: Option<&str>) {
    let mut claim = claim(name, "gpu", 1);
    claim["metadata"]["resourceVersion"] = json!("3");
    claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": epoch });
    if epoch.is_none() {
        claim["metadata"]["annotations"] = json!({});
    }
    fed.apply_claim(claim);
    fed.apply_pod(pod(name));
}

fn fences(intents: &[Intent]) -> Vec<ClaimReference> {
    let fences = intents.iter().flat_map(|intent| match intent {
        Intent::Fence { claims, .. } => {
            assert_eq!(claims.len(), 1, "one answer for each");
            claims.clone()
        }
        _ => Vec::new(),
    });
    fences.collect()
}

#[test]
fn a_claim_that_refuses_the_epoch_keeps_nobody_else_waiting() {
    for epoch in [None, Some("before")] {
        let mut fed = leader(&[("a", 2)]);
        before_the_term(&mut fed, "big", epoch);
        before_the_term(&mut fed, "good", epoch);
        let all = fences(&fed.decide());
        assert_eq!(all.len(), 2);
        refuse(&mut fed, all.iter().find(|claim| claim.key.name == "big-gpus").unwrap(), None);
        let written = Observation::ClaimsWritten { claims: vec![key("good-gpus")], is_done: true };
        fed.decider.observe(fed.now, written).unwrap();
        let intents = fed.decide();
        let allocated: Vec<&str> = intents
            .iter()
            .filter_map(|intent| match intent {
                Intent::Allocate { pod, .. } => Some(pod.key.name.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(allocated, ["good"], "{epoch:?}");
        assert!(told(&intents, "big"), "{epoch:?}: {intents:?}");
        // A claim without an earlier epoch is simply retried. The other is fenced first: an earlier leader's write may still arrive.
        fed.now += Time::from_secs(301);
        let intents = fed.decide();
        let is_tried =
            |intents: &[Intent]| intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. }));
        assert_eq!(is_tried(&intents), epoch.is_none());
        if epoch.is_some() {
            assert_eq!(fences(&intents).len(), 1);
            let written = Observation::ClaimsWritten { claims: vec![key("big-gpus")], is_done: true };
            fed.decider.observe(fed.now, written).unwrap();
            assert!(is_tried(&fed.decide()));
        }
    }
}

/// A pod with a refused claim gets nothing, and its promised devices become free for others.
#[test]
fn devices_that_a_claim_refused_are_free_at_once() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("big", "gpu", 1, 5);
    fed.apply_pod(pod("big"));
    let intents = fed.decide();
    let [Intent::Allocate { pod: reference, claims, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    fed.versioned("other", "gpu", 1, 6);
    fed.apply_pod(pod("other"));
    refuse(&mut fed, &claims[0].claim, Some(reference.clone()));
    let carried = Observation::Carried { pod: reference.clone(), is_done: false, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    let intents = fed.decide();
    let [Intent::Allocate { pod: allocated, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(allocated.key.name, "other");
    fed.written(&intents);
    fed.now += Time::from_secs(5);
    assert!(told(&fed.decide(), "big"));
    // The claim changed, so the API server may accept the next write.
    fed.delete(tessera_cluster::Kind::Pod, "other");
    fed.delete(tessera_cluster::Kind::ResourceClaim, "other-gpus");
    fed.versioned("big", "gpu", 1, 7);
    assert_eq!(fed.allocates().len(), 1);
}

/// A write never acknowledged may still arrive, whatever is refused later.
#[test]
fn devices_whose_write_got_no_answer_stay_taken_where_its_settling_is_refused() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    let intents = fed.decide();
    let [Intent::Allocate { pod: reference, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    let carried = Observation::Carried { pod: reference.clone(), is_done: false, versions: Vec::new() };
    fed.decider.observe(fed.now, carried).unwrap();
    let all = fences(&fed.decide());
    refuse(&mut fed, &all[0], None);
    fed.versioned("other", "gpu", 1, 6);
    fed.apply_pod(pod("other"));
    assert_eq!(fed.allocates(), []);
    assert!(fed.decider.wake().is_none_or(|wake| wake > fed.now), "not again at once");
    fed.now += Time::from_secs(301);
    assert_eq!(fences(&fed.decide()).len(), 1);
}

/// Refused writes are not repeated endlessly.
#[test]
fn devices_that_cannot_be_taken_back_are_not_asked_for_at_once_again() {
    let mut fed = leader(&[("a", 1)]);
    let mut named = allocated(claim("x", "gpu", 1), "a", &[card(0)]);
    named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4",
        "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
    fed.apply_claim(named);
    let clears = |intents: &[Intent]| -> Vec<ClaimReference> {
        let clears = intents.iter().flat_map(|intent| match intent {
            Intent::Clear { claims, .. } => claims.clone(),
            _ => Vec::new(),
        });
        clears.collect()
    };
    let asked = clears(&fed.decide());
    refuse(&mut fed, &asked[0], None);
    assert_eq!(clears(&fed.decide()).len(), 0);
    fed.now += Time::from_secs(301);
    assert_eq!(clears(&fed.decide()).len(), 1);
}
