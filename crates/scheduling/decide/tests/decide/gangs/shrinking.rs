//! Gangs that shrink while they run.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Time};

use crate::gangs::growth::running;
use crate::gangs::jobs::{job, of_index};
use crate::gangs::member;
use crate::gangs::preemption::evicted;
use crate::leader::leader;
use crate::objects::*;

/// Two pods of a gang of `size` that started with `formed` run on nodes of one card each.
fn apply_running(fed: &mut Fed, size: usize, formed: usize) {
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        fed.apply_claim(allocated(claim(&format!("train-{number}"), "gpu", 1), node, &[card(0)]));
        fed.apply_pod(running(number, size, formed, node));
    }
}

/// Pods with a number to be written on them.
fn noted(fed: &mut Fed) -> Vec<(String, usize)> {
    let noted = fed.decide().into_iter().filter_map(|intent| match intent {
        Intent::Note { pod, formed, .. } => Some((pod.key.name, formed?)),
        _ => None,
    });
    noted.collect()
}

fn both(number: usize) -> Vec<(String, usize)> {
    vec![("train-0".to_owned(), number), ("train-1".to_owned(), number)]
}

/// Of four pods two remain; the gang grows again without room, and another replica leads.
#[test]
fn the_next_leader_knows_that_the_gang_shrank() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    apply_running(&mut fed, 4, 4);
    assert_eq!(noted(&mut fed), []);
    apply_running(&mut fed, 2, 4);
    assert_eq!(noted(&mut fed), both(2));
    let mut next = leader(&[("a", 1), ("b", 1)]);
    apply_running(&mut next, 4, 2);
    for number in 2..4 {
        next.versioned(&format!("train-{number}"), "gpu", 1, 5);
        next.apply_pod(member("train", number, 4));
    }
    for minutes in 0..20 {
        next.now = Time::from_secs(1_000 + 60 * minutes);
        let intents = next.decide();
        assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
    }
}

/// It shrank while nobody led, or the leader's write failed.
#[test]
fn a_leader_notes_what_shrank_before_its_term() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.decider.follow();
    apply_running(&mut fed, 4, 4);
    apply_running(&mut fed, 2, 4);
    assert_eq!(noted(&mut fed), []);
    fed.decider.lead(fed.now, "two");
    assert_eq!(noted(&mut fed), both(2));
    apply_running(&mut fed, 2, 2);
    assert_eq!(noted(&mut fed), []);
}

/// Nothing but the Job changes.
#[test]
fn a_job_with_less_parallelism_is_a_gang_that_shrank() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.apply(job(4, json!({})));
    let mut pod = of_index(0, "x");
    pod["metadata"]["annotations"] = json!({ tessera_api::gang::FORMED_ANNOTATION: "4" });
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!("a");
    fed.apply_pod(pod);
    assert_eq!(noted(&mut fed), []);
    fed.apply(job(2, json!({})));
    assert_eq!(noted(&mut fed), [("train-0-x".to_owned(), 2)]);
    fed.delete(Kind::Pod, "train-0-x");
    assert_eq!(noted(&mut fed), []);
}

/// Four of six pods started, two are enough: nothing is written.
#[test]
fn a_gang_that_may_be_smaller_has_not_shrunk() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let mut pod = running(0, 6, 4, "a");
    pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("2");
    fed.apply_pod(pod);
    assert_eq!(noted(&mut fed), []);
}

/// A pod with the labels of the gang of two, of another owner: where a JobSet is named its Jobs do not tell gangs apart.
fn of_another(labels: [(&str, &str); 2], formed: Option<&str>, node: Option<&str>) -> serde_json::Value {
    let mut pod = of_set(member("other", 0, 2));
    pod["metadata"]["labels"]["gpu.tessera.dev/group"] = json!("train");
    labels.into_iter().for_each(|(name, value)| pod["metadata"]["labels"][name] = json!(value));
    if let Some(formed) = formed {
        pod["metadata"]["annotations"] = json!({ tessera_api::gang::FORMED_ANNOTATION: formed });
    }
    if let Some(node) = node {
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn of_set(mut pod: serde_json::Value) -> serde_json::Value {
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = json!("set");
    pod
}

/// Both pods are needed all the same: where one is lost and finds no room the other does not go on for long.
#[test]
fn a_pod_with_the_label_of_a_gang_that_is_not_its_own_does_not_shrink_it() {
    let (min, size) = ("gpu.tessera.dev/group-min", "gpu.tessera.dev/group-size");
    let others = [
        of_another([(min, "1"), (size, "2")], None, None),
        of_another([(min, "1"), (size, "2")], None, Some("c")),
        of_another([(min, "1"), (size, "1")], Some("1"), Some("c")),
    ];
    for (case, other) in others.iter().enumerate() {
        for is_first in [true, false] {
            let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
            fed.apply_claim(allocated(claim("other", "gpu", 1), "c", &[card(0)]));
            if is_first {
                fed.apply_pod(other.clone());
            }
            for (number, node) in ["a", "b"].into_iter().enumerate() {
                fed.apply_claim(allocated(claim(&format!("train-{number}"), "gpu", 1), node, &[card(0)]));
                fed.apply_pod(of_set(running(number, 2, 2, node)));
            }
            if !is_first {
                fed.apply_pod(other.clone());
            }
            assert_eq!(noted(&mut fed), [], "{case}, {is_first}");
            fed.delete(Kind::Pod, "other-0");
            fed.delete(Kind::Pod, "train-1");
            fed.delete(Kind::ResourceClaim, "train-1-gpus");
            fed.apply_claim(allocated(claim("another", "gpu", 1), "b", &[card(0)]));
            fed.versioned("train-1", "gpu", 1, 6);
            let mut again = of_set(member("train", 1, 2));
            again["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
            fed.apply_pod(again);
            assert_eq!(noted(&mut fed), [], "{case}, {is_first}");
            fed.now += Time::from_secs(130);
            assert_eq!(evicted(&fed.decide()), ["train-0"], "{case}, {is_first}");
        }
    }
}

/// They still have the labels of before.
#[test]
fn pods_that_end_do_not_keep_their_gang_from_shrinking() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    apply_running(&mut fed, 3, 3);
    let mut ending = running(2, 3, 3, "c");
    ending["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:20:00Z");
    fed.apply_pod(ending);
    assert_eq!(noted(&mut fed), []);
    apply_running(&mut fed, 2, 3);
    assert_eq!(noted(&mut fed), both(2));
}
