//! A gang's priority is the lowest among its pods.

use serde_json::json;
use tessera_decide::Intent;

use crate::gangs::member;
use crate::gangs::preemption::{urgent, victims};
use crate::gangs::queue::{allocated_to, ask_at, at};
use crate::leader::leader;
use crate::objects::*;

/// A gang of pods with these priorities and a card each.
fn gang(fed: &mut Fed, priorities: &[i32]) {
    for (number, priority) in priorities.iter().enumerate() {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, priorities.len());
        pod["spec"]["priority"] = json!(priority);
        pod["metadata"]["creationTimestamp"] = at(10);
        fed.apply_pod(pod);
    }
}

#[test]
fn one_pod_of_high_priority_does_not_protect_its_gang() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    gang(&mut fed, &[0, 1000]);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    fed.written(&lifts);
    for intent in &intents {
        let Intent::Allocate { pod, node, .. } = intent else { continue };
        let found = serde_json::to_value(fed.decider.cluster().objects().pods[&pod.key].as_ref()).unwrap();
        fed.bound(found, node);
    }
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["train-0", "train-1"]);
}

#[test]
fn one_pod_of_high_priority_does_not_bring_its_gang_forward() {
    let mut fed = leader(&[("a", 2)]);
    gang(&mut fed, &[0, 1000]);
    ask_at(&mut fed, "urgent", 2, 20, |pod| pod["spec"]["priority"] = json!(10));
    assert_eq!(allocated_to(&fed.decide()), ["urgent"]);
}
