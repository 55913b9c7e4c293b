//! Gangs: all or nothing, and the handling of partial gangs.

mod apart;
mod equal_priority;
mod growth;
mod growth_refused;
mod incomplete;
mod jobs;
mod leaving;
mod never;
mod parts_of_cards;
pub mod preemption;
mod priorities;
pub mod queue;
mod repaired;
mod reservations;
mod rolling_update;
mod room;
mod shrinking;
mod states;
mod unlisted;
mod where_they_go;

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, Time, Topic};

use crate::leader::leader;
use crate::objects::*;

/// A pod of a gang of `size`, owned by a controller able to replace it.
pub fn member(gang: &str, number: usize, size: usize) -> Value {
    let mut pod = pod(&format!("{gang}-{number}"));
    pod["metadata"]["labels"] =
        json!({ "gpu.tessera.dev/group": gang, "gpu.tessera.dev/group-size": size.to_string() });
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": gang,
        "uid": format!("job-{gang}"), "controller": true }]);
    pod
}

fn names(gang: &str, size: usize) -> Vec<String> {
    (0..size).map(|number| format!("{gang}-{number}")).collect()
}

impl Fed {
    /// Adds a gang of pods with `cards` cards each.
    pub fn gang(&mut self, gang: &str, size: usize, cards: usize) {
        for number in 0..size {
            let pod = member(gang, number, size);
            self.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", cards, 5);
            self.apply_pod(pod);
        }
    }

    /// Applies the decided writes: devices, and the acknowledgement.
    pub fn written(&mut self, intents: &[Intent]) {
        for intent in intents {
            let Intent::Allocate { pod, claims, .. } = intent else { continue };
            for claim in claims {
                let found = self.decider.cluster().objects().claims[&claim.claim.key].clone();
                let mut found = serde_json::to_value(found.as_ref()).unwrap();
                let mut allocation = serde_json::to_value(&claim.allocation).unwrap();
                let now = k8s_openapi::jiff::Timestamp::from_second(self.now.as_secs() as i64).unwrap();
                allocation["allocationTimestamp"] = json!(now.to_string());
                found["status"] = json!({ "allocation": allocation });
                found["metadata"]["resourceVersion"] = json!("6");
                self.apply_claim(found);
            }
            let versions = claims.iter().map(|claim| (claim.claim.key.clone(), "6".to_owned())).collect();
            let carried = Observation::Carried { pod: pod.clone(), is_done: true, versions };
            self.decider.observe(self.now, carried).unwrap();
        }
    }

    /// Binds the pod like kube-scheduler.
    pub fn bound(&mut self, mut pod: Value, node: &str) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let claim = self.decider.cluster().objects().claims[&key(&format!("{name}-gpus"))].clone();
        let mut claim = serde_json::to_value(claim.as_ref()).unwrap();
        claim["status"]["reservedFor"] =
            json!([{ "resource": "pods", "name": name, "uid": format!("uid-{name}") }]);
        self.apply_claim(claim);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeName"] = json!(node);
        self.apply_pod(pod);
    }
}

/// Pods with devices written and the gate kept, and pods whose gate is lifted.
pub fn steps(intents: &[Intent]) -> (Vec<String>, Vec<String>) {
    let (mut allocated, mut lifted) = (Vec::new(), Vec::new());
    for intent in intents {
        match intent {
            Intent::Allocate { pod, claims, lifts_gate: false, .. } => {
                assert!(!claims.is_empty());
                allocated.push(pod.key.name.clone());
            }
            Intent::Allocate { pod, claims, lifts_gate: true, .. } => {
                assert!(claims.is_empty(), "{intent:?}");
                lifted.push(pod.key.name.clone());
            }
            Intent::Tell { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    allocated.sort();
    lifted.sort();
    (allocated, lifted)
}

#[test]
fn all_get_devices_before_any_gate_is_lifted() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    fed.gang("train", 4, 1);
    let intents = fed.decide();
    assert_eq!(steps(&intents), (names("train", 4), vec![]));
    // Three of four pods are observed with devices.
    fed.written(&intents[..3]);
    assert_eq!(steps(&fed.decide()), (vec![], vec![]));
    fed.written(&intents[3..]);
    assert_eq!(steps(&fed.decide()), (vec![], names("train", 4)));
}

#[test]
fn a_gang_that_does_not_fit_takes_nothing() {
    let mut fed = leader(&[("a", 2), ("b", 1)]);
    fed.gang("train", 2, 2);
    let intents = fed.decide();
    let [Intent::Tell { message, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert!(message.contains("gang train: 1 of 2 pods that it needs fit now"), "{message}");
    // Another pod takes the devices left by the gang.
    fed.versioned("other", "gpu", 2, 7);
    fed.apply_pod(pod("other"));
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn it_waits_for_all_of_its_pods() {
    let mut fed = leader(&[("a", 4)]);
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 3);
        pod["metadata"]["creationTimestamp"] = queue::at(990);
        fed.apply_pod(pod);
    }
    assert_eq!(fed.decide(), []);
    let why: Vec<String> = fed.decider.waiting().map(|(_, why)| why.to_owned()).collect();
    assert_eq!(why, vec!["gang team/train: 2 of 3 pods exist"; 2]);
    fed.versioned("train-2", "gpu", 1, 5);
    fed.apply_pod(member("train", 2, 3));
    assert_eq!(fed.allocates().len(), 3);
}

/// Two gangs, each of which would hold half if pods were served on arrival.
#[test]
fn two_gangs_do_not_hold_half_each() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    // Their pods arrive by turns.
    for number in 0..4 {
        for gang in ["one", "two"] {
            fed.versioned(&format!("{gang}-{number}"), "gpu", 1, 5);
            fed.apply_pod(member(gang, number, 4));
        }
        let (allocated, _) = steps(&fed.decide());
        assert_eq!(allocated.len(), if number == 3 { 4 } else { 0 });
    }
}

#[test]
fn the_next_leader_completes_what_is_half_written() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    fed.gang("train", 4, 1);
    let intents = fed.decide();
    let mut next = leader(&[("a", 2), ("b", 2)]);
    next.gang("train", 4, 1);
    next.written(&intents[..2]);
    let (allocated, lifted) = steps(&next.decide());
    assert_eq!((allocated.len(), lifted.len()), (2, 0));
}

#[test]
fn the_next_leader_clears_what_cannot_be_completed() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    let mut next = leader(&[("a", 1)]);
    next.gang("train", 2, 1);
    let on_a = intents.iter().find(|intent| matches!(intent, Intent::Allocate { node, .. } if node == "a"));
    next.written(&[on_a.unwrap().clone()]);
    let intents = next.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Clear { claims, .. } if claims.len() == 1)));
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. })), "{intents:?}");
}

#[test]
fn a_gang_that_lost_a_pod_before_its_gates_were_lifted_holds_nothing() {
    let mut fed = leader(&[("a", 2)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents[..1]);
    fed.written(&intents[1..]);
    fed.delete(Kind::Pod, "train-1");
    fed.delete(Kind::ResourceClaim, "train-1-gpus");
    let intents = fed.decide();
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Clear { claims, .. } if claims.len() == 1)),
        "{intents:?}"
    );
}

/// A leader with a gang of two over two nodes. The second pod's node is gone, and the pod has been recreated.
pub fn one_of_two_lost(label: Option<&str>) -> Fed {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let labelled = |number| {
        let mut pod = member("train", number, 2);
        if let Some(label) = label {
            pod["metadata"]["labels"]["gpu.tessera.dev/group-when-partial"] = json!(label);
        }
        pod
    };
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(labelled(number));
    }
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    assert_eq!(steps(&lifts).1.len(), 2);
    fed.written(&lifts);
    for intent in &intents {
        let Intent::Allocate { pod, node, .. } = intent else { continue };
        let number = pod.key.name.strip_prefix("train-").unwrap().parse().unwrap();
        fed.bound(labelled(number), node);
    }
    let node = |name: &str| {
        let mut on = intents.iter().filter_map(|intent| match intent {
            Intent::Allocate { pod, node, .. } if pod.key.name == name => Some(node.clone()),
            _ => None,
        });
        on.next().unwrap()
    };
    fed.now += Time::from_secs(1_000);
    fed.delete(Kind::Node, &node("train-1"));
    fed.delete(Kind::Pod, "train-1");
    fed.delete(Kind::ResourceClaim, "train-1-gpus");
    fed.decide();
    fed.versioned("train-1", "gpu", 1, 9);
    let mut again = labelled(1);
    let created = k8s_openapi::jiff::Timestamp::from_second(fed.now.as_secs() as i64).unwrap();
    again["metadata"]["creationTimestamp"] = json!(created.to_string());
    fed.apply_pod(again);
    fed
}

#[test]
fn a_pod_that_comes_back_is_placed_beside_its_partners() {
    let mut fed = one_of_two_lost(None);
    assert_eq!(steps(&fed.decide()), (vec![], vec![]));
    fed.apply(node("c"));
    slices("c", 1, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.listed();
    fed.now += Time::from_secs(61);
    fed.decide();
    fed.listed();
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-1".to_owned()], vec![]));
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()), (vec![], vec!["train-1".to_owned()]));
}

#[test]
fn partners_without_the_others_are_evicted_after_two_minutes() {
    let mut fed = one_of_two_lost(None);
    fed.decide();
    fed.now += Time::from_secs(119);
    assert!(!fed.decide().iter().any(|intent| matches!(intent, Intent::Evict { .. })));
    fed.now += Time::from_secs(2);
    assert!(fed.decider.wake().is_some_and(|wake| wake <= fed.now));
    let intents = fed.decide();
    let evicted: Vec<&str> = intents
        .iter()
        .filter_map(|intent| match intent {
            Intent::Evict { pod, why } => {
                assert!(why.contains("for 2 min only 1 pods of its gang train run"), "{why}");
                Some(pod.key.name.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(evicted, ["train-0"]);
}

/// kube-scheduler reports nothing, so only the timeout applies.
#[test]
fn a_pod_that_is_not_bound_in_two_minutes_gets_a_spare_node() {
    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    fed.written(&lifts);
    let node_of = |name: &str| {
        intents.iter().find_map(|intent| match intent {
            Intent::Allocate { pod, node, .. } if pod.key.name == name => Some(node.clone()),
            _ => None,
        })
    };
    fed.bound(member("train", 0, 2), &node_of("train-0").unwrap());
    let mut lifted = member("train", 1, 2);
    lifted["spec"]["schedulingGates"] = json!([]);
    fed.apply_pod(lifted.clone());
    fed.decide();
    fed.now += Time::from_secs(121);
    fed.decide();
    let cleared = fed.decide();
    let Some(Intent::Clear { claims, .. }) =
        cleared.iter().find(|intent| matches!(intent, Intent::Clear { .. }))
    else {
        panic!("{cleared:?}")
    };
    let written = vec![claims[0].key.clone()];
    fed.versioned("train-1", "gpu", 1, 9);
    fed.decider.observe(fed.now, Observation::ClaimsWritten { claims: written, is_done: true }).unwrap();
    let again = fed.allocates();
    assert_eq!(again.len(), 1);
    assert_ne!(Some(&again[0].1), node_of("train-1").as_ref());
}

#[test]
fn partners_are_kept_where_the_gang_says_so() {
    let mut fed = one_of_two_lost(Some("Keep"));
    fed.decide();
    fed.now += Time::from_secs(300);
    assert!(!fed.decide().iter().any(|intent| matches!(intent, Intent::Evict { .. })));
}

#[test]
fn a_gang_that_may_be_smaller_begins_with_as_many_as_fit() {
    let mut fed = leader(&[("a", 3)]);
    for number in 0..4 {
        let mut pod = member("train", number, 4);
        pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("2");
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(pod);
    }
    let intents = fed.decide();
    assert_eq!(steps(&intents), (names("train", 3), vec![]));
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()), (vec![], names("train", 3)));
}

#[test]
fn what_cannot_be_is_told() {
    for (label, value, words) in [
        ("group-size", "0", "must be a number from 1 to 4096"),
        ("group-size", "many", "must be a number from 1 to 4096"),
        ("group-size", "99999999999999999999", "must be a number from 1 to 4096"),
        ("group-min", "3", "needs 3 pods to work (group-min) and has only 2"),
        ("group-min", "0", "must be a number from 1 to 4096"),
        ("group-when-partial", "Maybe", "must be Evict or Keep"),
    ] {
        let mut fed = leader(&[("a", 4)]);
        fed.versioned("train-0", "gpu", 1, 5);
        let mut pod = member("train", 0, 2);
        pod["metadata"]["labels"][format!("gpu.tessera.dev/{label}")] = json!(value);
        fed.apply_pod(pod);
        let intents = fed.decide();
        let [Intent::Tell { message, topic: Topic::NotAllocated, .. }] = intents.as_slice() else {
            panic!("{label}: {intents:?}")
        };
        assert!(message.contains(words), "{message}");
        assert_eq!(fed.decider.wake(), None);
    }
}

#[test]
fn pods_that_disagree_are_told_and_more_than_there_may_be() {
    let mut fed = leader(&[("a", 4)]);
    for (number, size) in [(0, 2), (1, 3)] {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, size));
    }
    let messages = |fed: &mut Fed| -> Vec<String> {
        let told = fed.decide().into_iter().map(|intent| match intent {
            Intent::Tell { message, .. } => message,
            other => panic!("{other:?}"),
        });
        told.collect()
    };
    let told = messages(&mut fed);
    assert_eq!(told.len(), 2);
    assert!(told[0].contains("train-0 says size 2 and least 2, train-1 says 3 and 3"), "{told:?}");
    let mut fed = leader(&[("a", 4)]);
    for number in 0..3 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, 2));
    }
    let told = messages(&mut fed);
    assert!(told.len() == 3 && told[0].contains("3 pods say that they belong to its gang, which has 2"));
    // One pod leaves, and the others proceed.
    fed.delete(Kind::Pod, "train-2");
    assert_eq!(steps(&fed.decide()).0.len(), 2);
}
