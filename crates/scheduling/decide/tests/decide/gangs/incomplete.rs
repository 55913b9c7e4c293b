//! Gangs waiting for their pods.

use serde_json::{Value, json};
use tessera_decide::{Intent, Time};

use crate::gangs::member;
use crate::gangs::queue::at;
use crate::leader::leader;
use crate::objects::*;

/// One pod of two, with an owner of this kind.
fn one_of_two(owner: &str) -> Fed {
    let mut fed = leader(&[("a", 2)]);
    fed.versioned("train-0", "gpu", 1, 5);
    let mut pod = member("train", 0, 2);
    pod["metadata"]["creationTimestamp"] = at(1_000);
    pod["metadata"]["ownerReferences"][0]["kind"] = json!(owner);
    fed.apply_pod(pod);
    fed
}

fn told(intents: &[Intent]) -> Vec<&str> {
    let told = intents.iter().filter_map(|intent| match intent {
        Intent::Tell { message, .. } => Some(message.as_str()),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_gang_that_stays_incomplete_is_told_after_a_minute() {
    for (owner, words) in [
        ("Job", "1 of 2 pods exist"),
        ("ReplicaSet", "strategy Recreate"),
        ("StatefulSet", "podManagementPolicy Parallel"),
    ] {
        let mut fed = one_of_two(owner);
        assert_eq!(fed.decide(), [], "{owner}");
        assert!(fed.decider.wake().is_some_and(|wake| wake <= Time::from_secs(1_060)), "{owner}");
        fed.now = Time::from_secs(1_060);
        let intents = fed.decide();
        let told = told(&intents);
        assert!(told.len() == 1 && told[0].contains(words), "{owner}: {intents:?}");
    }
}

/// Whether or not its pods agree on the size.
#[test]
fn pods_of_incomplete_gangs_are_unmet_demand_of_their_pools() {
    let unmet = |fed: &mut Fed| -> Vec<u32> {
        fed.decide();
        fed.decider.pools()["main"].unmet.iter().map(|shape| shape.pods).collect()
    };
    assert_eq!(unmet(&mut one_of_two("Job")), [1]);
    let mut fed = one_of_two("Job");
    fed.versioned("train-1", "gpu", 1, 5);
    let mut other: Value = member("train", 1, 3);
    other["metadata"]["creationTimestamp"] = at(1_000);
    fed.apply_pod(other);
    assert_eq!(unmet(&mut fed), [2], "of different sizes");
}
