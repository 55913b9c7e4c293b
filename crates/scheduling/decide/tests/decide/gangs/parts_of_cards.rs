//! Preemption where nominated and held devices differ but share a card.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::Intent;

use crate::gangs::preemption::{evicted, nominated, victims};
use crate::gangs::queue::allocated_to;
use crate::leader::leader;
use crate::objects::*;

fn ask(fed: &mut Fed, name: &str, class: &str, priority: i32) {
    fed.versioned(name, class, 1, 5);
    let mut pod = pod(name);
    pod["spec"]["priority"] = json!(priority);
    fed.apply_pod(pod);
}

/// A pod running on node `a` with one device of the class.
fn runs(fed: &mut Fed, name: &str, class: &str, priority: i32) {
    ask(fed, name, class, priority);
    let intents = fed.decide();
    fed.written(&intents);
    let mut pod = pod(name);
    pod["spec"]["priority"] = json!(priority);
    fed.bound(pod, "a");
}

#[test]
fn who_holds_the_card_makes_room_for_a_half_of_it() {
    let mut fed = leader(&[("a", 1)]);
    runs(&mut fed, "whole", "gpu", 0);
    ask(&mut fed, "urgent", "half", 10);
    assert_eq!(victims(&mut fed), ["whole"]);
}

#[test]
fn who_holds_the_other_half_stays() {
    let mut fed = leader(&[("a", 1)]);
    runs(&mut fed, "stays", "half", 5);
    runs(&mut fed, "low", "half", 0);
    ask(&mut fed, "urgent", "half", 10);
    assert_eq!(victims(&mut fed), ["low"]);
}

/// The half freed first is part of the nominated card.
#[test]
fn nobody_gets_a_half_of_a_card_that_is_nominated() {
    let mut fed = leader(&[("a", 1)]);
    runs(&mut fed, "first", "half", 0);
    runs(&mut fed, "second", "half", 0);
    ask(&mut fed, "urgent", "gpu", 10);
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1, "{intents:?}");
    assert_eq!(evicted(&fed.decide()), ["first", "second"]);
    let gone = |fed: &mut Fed, name: &str| {
        fed.delete(Kind::Pod, name);
        fed.delete(Kind::ResourceClaim, &format!("{name}-gpus"));
    };
    gone(&mut fed, "first");
    ask(&mut fed, "other", "half", 0);
    assert!(!fed.decide().iter().any(|intent| matches!(intent, Intent::Allocate { .. })));
    gone(&mut fed, "second");
    assert_eq!(allocated_to(&fed.decide()), ["urgent"]);
}
