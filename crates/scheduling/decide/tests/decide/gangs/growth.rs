//! Gangs that grow while they run.

use std::collections::BTreeSet;

use serde_json::json;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::gangs::preemption::evicted;
use crate::gangs::queue::{allocated_to, ask_at, at, strict, with_placement};
use crate::gangs::{member, steps};
use crate::leader::leader;
use crate::objects::*;

/// A member of a gang of `size` that started with `formed` pods and runs on the node.
pub fn running(number: usize, size: usize, formed: usize, node: &str) -> serde_json::Value {
    let mut pod = member("train", number, size);
    pod["metadata"]["annotations"] = json!({ FORMED_ANNOTATION: formed.to_string() });
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A gang of two runs on nodes of one card each, and grows to `size`.
fn grown(size: usize, nodes: &[(&str, usize)]) -> Fed {
    let mut fed = leader(nodes);
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        let name = format!("train-{number}");
        fed.apply_claim(allocated(claim(&name, "gpu", 1), node, &[card(0)]));
        fed.apply_pod(running(number, size, 2, node));
    }
    for number in 2..size {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, size));
    }
    fed
}

#[test]
fn a_gang_is_lifted_with_the_number_of_pods_that_start_together() {
    let mut fed = leader(&[("a", 2)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let formed = fed.decide().into_iter().filter_map(|intent| match intent {
        Intent::Allocate { formed, .. } => Some(formed),
        _ => None,
    });
    assert_eq!(formed.collect::<Vec<_>>(), [Some(2), Some(2)]);
}

#[test]
fn a_gang_that_cannot_grow_goes_on_as_it_was() {
    let mut fed = grown(3, &[("a", 1), ("b", 1)]);
    for minutes in 0..20 {
        fed.now = Time::from_secs(1_000 + 60 * minutes);
        let intents = fed.decide();
        assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
    }
}

#[test]
fn the_added_pods_start_together() {
    let mut fed = grown(4, &[("a", 1), ("b", 1), ("c", 1)]);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
    let mut fed = grown(4, &[("a", 1), ("b", 1), ("c", 2)]);
    let (allocated, _) = steps(&fed.decide());
    assert_eq!(allocated, ["train-2", "train-3"]);
}

/// Of the three pods without devices one fits. It takes the place of the lost one.
#[test]
fn a_growing_gang_gets_its_lost_pod_back_first() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    lose(&mut fed, "train-1", 1, 4);
    let intents = fed.decide();
    let (allocated, _) = steps(&intents);
    assert_eq!(allocated, ["train-1"]);
    fed.written(&intents);
    let (allocated, lifted) = steps(&fed.decide());
    assert_eq!((allocated, lifted), (vec![], vec!["train-1".to_owned()]));
}

/// The added pods have names before the one that was lost.
#[test]
fn the_lost_pod_is_the_newest_whatever_its_name() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    for (number, node) in [(2, "a"), (3, "b")] {
        let name = format!("train-{number}");
        fed.apply_claim(allocated(claim(&name, "gpu", 1), node, &[card(0)]));
        fed.apply_pod(running(number, 4, 2, node));
    }
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, 4));
    }
    lose(&mut fed, "train-3", 3, 4);
    assert_eq!(steps(&fed.decide()).0, ["train-3"]);
}

/// Replaces a pod of the gang of `size` whose node was lost.
fn lose(fed: &mut Fed, name: &str, number: usize, size: usize) {
    fed.delete(Kind::Pod, name);
    fed.delete(Kind::ResourceClaim, &format!("{name}-gpus"));
    fed.versioned(name, "gpu", 1, 6);
    let mut again = member("train", number, size);
    again["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
    fed.apply_pod(again);
}

/// A quota admits no more than three of four pods.
#[test]
fn a_lost_pod_comes_back_while_added_pods_do_not_exist() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    fed.delete(Kind::Pod, "train-3");
    lose(&mut fed, "train-1", 1, 4);
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-1".to_owned()], vec![]));
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()), (vec![], vec!["train-1".to_owned()]));
}

#[test]
fn a_lost_pod_comes_back_while_an_added_pod_is_refused() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    let pod = PodReference { key: key("train-3"), uid: "uid-train-3".to_owned() };
    fed.decider.observe(fed.now, Observation::PodRefused { pod, why: "a policy".to_owned() }).unwrap();
    lose(&mut fed, "train-1", 1, 4);
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-1".to_owned()], vec![]));
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()), (vec![], vec!["train-1".to_owned()]));
}

/// Four pods start together. The gang shrinks to two, and grows again without room.
#[test]
fn a_gang_that_shrank_before_it_grew_goes_on_as_it_was() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    for size in [4, 2, 4] {
        for (number, node) in ["a", "b"].into_iter().enumerate() {
            let name = format!("train-{number}");
            fed.apply_claim(allocated(claim(&name, "gpu", 1), node, &[card(0)]));
            fed.apply_pod(running(number, size, 4, node));
        }
    }
    for number in 2..4 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, 4));
    }
    for minutes in 0..20 {
        fed.now = Time::from_secs(1_000 + 60 * minutes);
        let intents = fed.decide();
        let is_harmless = |intent: &Intent| matches!(intent, Intent::Tell { .. } | Intent::Note { .. });
        assert!(intents.iter().all(is_harmless), "{intents:?}");
    }
}

/// Two cards are enough for the gang as it runs, and never for what is added.
#[test]
fn a_gang_that_grows_beyond_its_pool_is_told_so() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    let told = fed.decide().into_iter().find_map(|intent| match intent {
        Intent::Tell { message, .. } => Some(message),
        _ => None,
    });
    assert!(told.as_ref().is_some_and(|told| told.contains("enough for 0 of 2 pods")), "{told:?}");
}

/// A manifest copied from a running pod names a number of pods that never started.
#[test]
fn a_gated_pod_tells_nothing_of_a_start() {
    let mut fed = leader(&[("a", 1)]);
    let mut pod = member("train", 0, 2);
    pod["metadata"]["annotations"] = json!({ FORMED_ANNOTATION: "1" });
    fed.versioned("train-0", "gpu", 1, 5);
    fed.apply_pod(pod);
    assert_eq!(steps(&fed.decide()), (vec![], vec![]));
}

/// The added pods waited for ten minutes. Their gang is whole until they had time to be bound.
#[test]
fn a_gang_that_has_grown_is_not_partial_while_its_added_pods_are_on_their_way() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    fed.decide();
    fed.now = Time::from_secs(1_600);
    fed.apply(node("c"));
    slices("c", 2, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.now = Time::from_secs(1_700);
    fed.decide();
    fed.listed();
    let intents = fed.decide();
    assert_eq!(steps(&intents).0, ["train-2", "train-3"]);
    fed.written(&intents);
    let lifts = fed.decide();
    assert_eq!(steps(&lifts).1, ["train-2", "train-3"]);
    fed.written(&lifts);
    for number in 2..4 {
        let mut pod = running(number, 4, 4, "c");
        pod["spec"]["nodeName"] = json!(null);
        fed.apply_pod(pod);
    }
    for second in [1_700, 1_760] {
        fed.now = Time::from_secs(second);
        let intents = fed.decide();
        assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
    }
}

fn cleared(intents: &[Intent]) -> Vec<String> {
    let claims = intents.iter().flat_map(|intent| match intent {
        Intent::Clear { claims, .. } => claims.clone(),
        _ => Vec::new(),
    });
    claims.map(|claim| claim.key.name).collect()
}

/// One of the added pods is gone before they start. The other does not hold devices that it cannot use.
#[test]
fn an_added_pod_gives_its_devices_back_when_its_companion_is_gone() {
    let mut fed = grown(4, &[("a", 1), ("b", 1), ("c", 2)]);
    let intents = fed.decide();
    fed.written(&intents);
    fed.delete(Kind::Pod, "train-3");
    fed.delete(Kind::ResourceClaim, "train-3-gpus");
    assert_eq!(cleared(&fed.decide()), ["train-2-gpus"]);
}

/// A node is gone, and the API server refuses to take the devices there back: the gang has not started, and does not start in part.
#[test]
fn no_gate_is_lifted_while_devices_on_a_lost_node_stay() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    fed.delete(Kind::Node, "b");
    let intents = fed.decide();
    let Some(Intent::Clear { claims, .. }) = intents.first() else { panic!("{intents:?}") };
    let refused =
        Observation::ClaimRefused { claim: claims[0].clone(), pod: None, why: "a policy".to_owned() };
    fed.decider.observe(fed.now, refused).unwrap();
    let intents = fed.decide();
    assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
}

/// A pod that came before the added ones goes first, although the gang is older.
#[test]
fn added_pods_have_a_place_of_their_own_in_a_strict_queue() {
    let mut fed = with_placement(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)], strict());
    for (name, node) in [("train-0", "a"), ("train-1", "b"), ("holder", "d")] {
        fed.apply_claim(allocated(claim(name, "gpu", 1), node, &[card(0)]));
        let mut pod =
            if name == "holder" { pod(name) } else { running(usize::from(name == "train-1"), 4, 2, node) };
        pod["metadata"]["creationTimestamp"] = at(900);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeName"] = json!(node);
        fed.apply_pod(pod);
    }
    for number in 2..4 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 4);
        pod["metadata"]["creationTimestamp"] = at(960);
        fed.apply_pod(pod);
    }
    fed.decide();
    ask_at(&mut fed, "other", 1, 930, |_| {});
    assert_eq!(allocated_to(&fed.decide()), ["other"]);
}

/// The replica that did not decide on the growth leads when the first pods are lost.
#[test]
fn a_standby_knows_that_the_gang_has_grown() {
    let mut fed = grown(2, &[("a", 1), ("b", 1)]);
    fed.decider.follow();
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        fed.apply_pod(running(number, 4, 2, node));
    }
    for (number, node) in [(2, "c"), (3, "d")] {
        fed.apply_pod(member("train", number, 4));
        fed.apply_pod(running(number, 4, 4, node));
    }
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        fed.delete(Kind::Node, node);
        lose(&mut fed, &format!("train-{number}"), number, 4);
    }
    fed.decider.lead(fed.now, "two");
    let mut gone = BTreeSet::new();
    for second in [1_001, 1_002, 1_130, 1_300, 1_400] {
        fed.now = Time::from_secs(second);
        let intents = fed.decide();
        gone.extend(evicted(&intents));
        fed.listed();
    }
    assert_eq!(gone.into_iter().collect::<Vec<_>>(), ["train-2", "train-3"]);
}

/// A launcher has no cards. The node that it runs on has room for the worker when the other pod has ended.
#[test]
fn a_pod_without_cards_takes_no_seat_of_the_pool() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_claim(allocated(claim("other", "gpu", 1), "a", &[card(0)]));
    let mut other = pod("other");
    other["spec"]["schedulingGates"] = json!([]);
    other["spec"]["nodeName"] = json!("a");
    fed.apply_pod(other);
    let mut launcher = running(0, 2, 2, "a");
    launcher["spec"].as_object_mut().unwrap().remove("resourceClaims");
    fed.apply_pod(launcher);
    fed.versioned("train-1", "gpu", 1, 5);
    fed.apply_pod(member("train", 1, 2));
    fed.decide();
    let why = fed.decider.reason_of(&key("train-1")).map(ToString::to_string).unwrap_or_default();
    assert!(why.contains("1 pods that it needs") && !why.contains("too large"), "{why}");
}
