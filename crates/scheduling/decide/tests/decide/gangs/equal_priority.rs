//! No pod is evicted for a pod of the same priority.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::member;
use crate::gangs::preemption::{evicted, nominated, running, urgent, victims, with_priority};
use crate::leader::leader;
use crate::objects::*;

/// A pod of lower priority runs elsewhere, so a plan is made.
#[test]
fn nor_where_only_that_would_help() {
    let mut fed = leader(&[("a", 2), ("b", 1)]);
    assert_eq!(running(&mut fed, "same", 2, with_priority(10)), "a");
    running(&mut fed, "low", 1, with_priority(0));
    urgent(&mut fed, 2);
    assert_eq!(victims(&mut fed), [""; 0]);
}

/// A gang's lowest pod decides its priority.
#[test]
fn nor_for_a_gang_whose_lowest_pod_is_no_higher() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    running(&mut fed, "same", 1, with_priority(10));
    running(&mut fed, "low", 1, with_priority(0));
    for (number, priority) in [(0, 10), (1, 20)] {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 2);
        pod["spec"]["priority"] = json!(priority);
        fed.apply_pod(pod);
    }
    assert_eq!(victims(&mut fed), [""; 0]);
}

/// kube-scheduler, or an earlier leader, gave the card to another pod meanwhile.
#[test]
fn nor_when_it_got_what_was_nominated() {
    for (priority, expected) in [(10, &[][..]), (9, &["other"])] {
        let mut fed = leader(&[("a", 1)]);
        running(&mut fed, "low", 1, with_priority(0));
        urgent(&mut fed, 1);
        let intents = fed.decide();
        nominated(&mut fed, &intents);
        fed.delete(Kind::Pod, "low");
        fed.delete(Kind::ResourceClaim, "low-gpus");
        let mut other = pod("other");
        other["spec"]["priority"] = json!(priority);
        fed.apply_claim(allocated(claim("other", "gpu", 1), "a", &[card(0)]));
        fed.bound(other, "a");
        assert_eq!(evicted(&fed.decide()), expected, "priority {priority}");
    }
}

/// A disruption budget may allow the eviction by then.
#[test]
fn who_could_not_be_evicted_is_asked_again_after_a_minute() {
    let mut fed = leader(&[("a", 1)]);
    running(&mut fed, "low", 1, with_priority(0));
    urgent(&mut fed, 1);
    let intents = fed.decide();
    nominated(&mut fed, &intents);
    let pod = fed.decide().into_iter().find_map(|intent| match intent {
        Intent::Evict { pod, .. } => Some(pod),
        _ => None,
    });
    let refused = Observation::Evicted { pod: pod.unwrap(), is_done: false };
    fed.decider.observe(fed.now, refused).unwrap();
    fed.now += Time::from_secs(11);
    let intents = fed.decide();
    assert_eq!((evicted(&intents).len(), nominated(&mut fed, &intents)), (0, 0), "{intents:?}");
    for (seconds, expected) in [(40, 0), (20, 1)] {
        fed.now += Time::from_secs(seconds);
        fed.apply(labelled("a", json!({ "changed": seconds.to_string() })));
        let intents = fed.decide();
        assert_eq!(nominated(&mut fed, &intents), expected, "{intents:?}");
    }
}
