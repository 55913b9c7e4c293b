//! Pods unable to run ever, or on any node now, keep nothing from others.

use serde_json::json;
use tessera_decide::{Intent, Time};

use crate::gangs::member;
use crate::gangs::preemption::{running, with_priority};
use crate::gangs::queue::{allocated_to, ask_at, at, strict, who, with_placement};
use crate::leader::leader;
use crate::objects::*;

fn told<'i>(intents: &'i [Intent], name: &str) -> Option<&'i str> {
    intents.iter().find_map(|intent| match intent {
        Intent::Tell { pod, message, .. } if pod.key.name == name => Some(message.as_str()),
        _ => None,
    })
}

/// Until there is one.
#[test]
fn a_gang_without_any_managed_pool_is_told_so() {
    for (pool, said) in [
        (None, "no node has any; without"),
        (Some(json!({ "allocation": "Native" })), "no node has any; without"),
        (Some(steered()), "no node has any (GpuPool main is Steered); without"),
    ] {
        let mut fed = leader(&[]);
        if let Some(pool) = &pool {
            fed.apply(node("a"));
            slices("a", 2, pool.clone()).into_iter().for_each(|slice| fed.apply(slice));
        }
        fed.gang("train", 2, 1);
        let intents = fed.decide();
        let why = told(&intents, "train-0").unwrap_or_else(|| panic!("{intents:?}"));
        assert!(why.contains(said), "{why}");
        assert_eq!(fed.decide(), []);

        fed.apply(node("a"));
        slices("a", 2, managed()).into_iter().for_each(|slice| fed.apply(slice));
        fed.now += Time::from_secs(60);
        assert_eq!(fed.decide(), [Intent::ListClaims]);
        fed.listed();
        assert_eq!(allocated_to(&fed.decide()), ["train-0", "train-1"]);
    }
}

/// A DaemonSet's pods use part of each node's processors, so no node has eight left for the gang.
#[test]
fn a_gang_that_fits_no_node_beside_its_daemons_keeps_none() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    for node in ["a", "b"] {
        let mut daemon = pod(&format!("daemon-{node}"));
        daemon["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "name": "daemon", "uid": "daemons", "controller": true }]);
        daemon["spec"] = json!({ "nodeName": node,
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "10m" } } }] });
        fed.apply_pod(daemon);
    }
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(100);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("8");
        fed.apply_pod(pod);
    }
    fed.now += Time::from_secs(601);
    let intents = fed.decide();
    let why = told(&intents, "train-0").unwrap_or_else(|| panic!("{intents:?}"));
    assert!(why.contains("enough for 0 of 2 pods"), "{why}");
    ask_at(&mut fed, "other", 1, 1_000, |_| {});
    assert_eq!(who(&mut fed), ["other"]);
}

/// Also where pods could be preempted for it.
#[test]
fn a_pod_that_no_node_could_take_is_told_so_in_any_queue() {
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "low", 2, with_priority(-10));
    ask_at(&mut fed, "large", 3, 10, |_| {});
    let intents = fed.decide();
    let why = told(&intents, "large").unwrap_or_else(|| panic!("{intents:?}"));
    assert!(why.contains("no node could take it if it were empty"), "{why}");
}

/// Such as a pod with required affinity to a pod not in the cluster.
#[test]
fn who_was_refused_on_every_node_that_it_fits_holds_up_no_strict_queue() {
    let refused = json!({ "gpu.tessera.dev/refused-nodes":
        r#"{"a":"9999-01-01T00:00:00Z","b":"9999-01-01T00:00:00Z"}"# });
    let mut fed = with_placement(&[("a", 1), ("b", 1)], strict());
    ask_at(&mut fed, "head", 1, 10, |pod| pod["metadata"]["annotations"] = refused.clone());
    ask_at(&mut fed, "small", 1, 20, |_| {});
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), ["small"]);
    let why = told(&intents, "head").unwrap_or_else(|| panic!("{intents:?}"));
    assert!(why.contains("others pass it"), "{why}");
    // A gang, too.
    let mut fed = with_placement(&[("a", 1), ("b", 1)], strict());
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 2);
        pod["metadata"]["creationTimestamp"] = at(10);
        pod["metadata"]["annotations"] = refused.clone();
        fed.apply_pod(pod);
    }
    ask_at(&mut fed, "small", 1, 20, |_| {});
    assert_eq!(allocated_to(&fed.decide()), ["small"]);
}
