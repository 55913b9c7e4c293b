//! Gangs that grow by a pod whose gate may not be removed.

use serde_json::json;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::growth::running;
use crate::gangs::member;
use crate::gangs::preemption::evicted;
use crate::gangs::queue::at;
use crate::leader::leader;
use crate::objects::*;

const NODES: [(&str, usize); 3] = [("a", 1), ("b", 1), ("c", 2)];
const REFUSED: &str = "train-3";

/// A gang of two runs, and two pods are added to it.
fn grown() -> Fed {
    let mut fed = leader(&NODES);
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        let mut claim = allocated(claim(&format!("train-{number}"), "gpu", 1), node, &[card(0)]);
        claim["status"]["allocation"]["allocationTimestamp"] = at(900);
        fed.apply_claim(claim);
        fed.apply_pod(running(number, 4, 2, node));
    }
    for number in 2..4 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 4);
        pod["metadata"]["creationTimestamp"] = at(960);
        fed.apply_pod(pod);
    }
    fed
}

/// Carries the intents out; with `is_refused`, a policy refuses the removal of one gate. Returns whether that was tried.
fn carry_out(fed: &mut Fed, intents: Vec<Intent>, is_refused: bool) -> bool {
    let mut is_tried = false;
    for intent in intents {
        match &intent {
            Intent::Allocate { pod, lifts_gate: true, formed, node, .. } => {
                let is_it = pod.key.name == REFUSED;
                is_tried |= is_it;
                if is_it && is_refused {
                    let refused = Observation::PodRefused { pod: pod.clone(), why: "a policy".to_owned() };
                    fed.decider.observe(fed.now, refused).unwrap();
                    let carried =
                        Observation::Carried { pod: pod.clone(), is_done: false, versions: Vec::new() };
                    fed.decider.observe(fed.now, carried).unwrap();
                    continue;
                }
                fed.written(std::slice::from_ref(&intent));
                let found = fed.decider.cluster().objects().pods[&pod.key].clone();
                let mut found = serde_json::to_value(found.as_ref()).unwrap();
                found["metadata"]["annotations"] = json!({ FORMED_ANNOTATION: formed.unwrap().to_string() });
                fed.bound(found, node);
            }
            Intent::Allocate { .. } => fed.written(std::slice::from_ref(&intent)),
            Intent::Clear { claims, .. } => {
                let claims = claims.iter().map(|claim| claim.key.clone()).collect();
                fed.versioned(REFUSED, "gpu", 1, 9);
                let cleared = Observation::ClaimsWritten { claims, is_done: true };
                fed.decider.observe(fed.now, cleared).unwrap();
            }
            Intent::ListClaims => fed.listed(),
            Intent::Tell { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    is_tried
}

/// The next leader, with the same objects.
fn restarted(fed: &Fed) -> Fed {
    let objects = fed.decider.cluster().objects();
    let mut next = leader(&NODES);
    next.now = fed.now;
    objects.claims.values().for_each(|claim| next.apply(claim.as_ref().clone().into()));
    objects.pods.values().for_each(|pod| next.apply(pod.as_ref().clone().into()));
    next
}

#[test]
fn who_runs_goes_on_and_the_refused_pod_is_tried_again() {
    let mut fed = grown();
    let (mut tries, mut is_restarted) = (Vec::new(), false);
    for second in (1_000..5_000).step_by(10) {
        fed.now = Time::from_secs(second);
        if second > 3_000 && !is_restarted {
            (fed, is_restarted) = (restarted(&fed), true);
        }
        let intents = fed.decide();
        assert_eq!(evicted(&intents), [""; 0], "{second}");
        if carry_out(&mut fed, intents, true) {
            tries.push(second);
        }
    }
    assert!(tries.len() >= 8 && tries[2] - tries[1] > tries[1] - tries[0], "{tries:?}");
    let is_lifted = (5_000..6_000).step_by(10).any(|second| {
        fed.now = Time::from_secs(second);
        let intents = fed.decide();
        carry_out(&mut fed, intents, false)
    });
    assert!(is_lifted);
}

/// A gang that never ran as a whole is not whole without the pod.
#[test]
fn who_started_in_part_is_evicted() {
    let mut fed = leader(&NODES);
    for number in 2..4 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(960);
        fed.apply_pod(pod);
    }
    let mut gone = Vec::new();
    for second in (1_000..1_600).step_by(10) {
        fed.now = Time::from_secs(second);
        let (evictions, others): (Vec<Intent>, Vec<Intent>) =
            fed.decide().into_iter().partition(|intent| matches!(intent, Intent::Evict { .. }));
        gone.extend(evicted(&evictions));
        carry_out(&mut fed, others, true);
    }
    gone.dedup();
    assert_eq!(gone, ["train-2"]);
}
