//! Managed pools: who gets which devices, when, and what is taken back.

use serde_json::json;
use tessera_cluster::{Kind, Object, outcome};
use tessera_decide::{ClaimAllocation, Intent, Observation, Time};

use crate::objects::*;

/// A leader over these nodes of a managed pool, with everything handed over.
fn leader(nodes: &[(&str, usize)]) -> Fed {
    let mut fed = Fed::with_nodes(&[]);
    for (name, cards) in nodes {
        fed.apply(node(name));
        slices(name, *cards, managed()).into_iter().for_each(|slice| fed.apply(slice));
    }
    fed.now = Time::from_secs(1_000);
    fed.decider.lead(fed.now, "one");
    assert_eq!(fed.decide(), [Intent::ListClaims]);
    fed.listed();
    fed
}

impl Fed {
    fn listed(&mut self) {
        self.decider.observe(self.now, Observation::ClaimsListed { asked_at: self.now }).unwrap();
    }

    /// A claim as the API server has it.
    fn versioned(&mut self, pod: &str, class: &str, count: usize, version: u32) {
        let mut claim = claim(pod, class, count);
        claim["metadata"]["resourceVersion"] = json!(version.to_string());
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        self.apply_claim(claim);
    }

    /// What is allocated now: pod, node, devices.
    fn allocates(&mut self) -> Vec<(String, String, Vec<String>)> {
        let intents = self.decide();
        let allocate = |intent: &Intent| match intent {
            Intent::Allocate { pod, node, claims, .. } => {
                let results = claims.iter().flat_map(|claim| outcome::results(&claim.allocation));
                let devices = results.map(|result| result.device.clone()).collect();
                Some((pod.key.1.clone(), node.clone(), devices))
            }
            _ => None,
        };
        intents.iter().filter_map(allocate).collect()
    }
}

/// The slice with the time at which its taints came.
fn dated(slice: Object, second: i64) -> Object {
    let Object::ResourceSlice(mut slice) = slice else { return slice };
    let taints =
        slice.spec.devices.iter_mut().flatten().flat_map(|device| device.taints.iter_mut().flatten());
    for taint in taints {
        taint.time_added =
            Some(read(json!(k8s_openapi::jiff::Timestamp::from_second(second).unwrap().to_string())));
    }
    slice.into()
}

/// A pod without the gate, as one that did not opt in.
fn ungated(name: &str) -> serde_json::Value {
    let mut pod = pod(name);
    pod["spec"]["schedulingGates"] = json!([]);
    pod
}

#[test]
fn a_pod_gets_managed_cards_whether_or_not_it_has_the_gate() {
    let mut fed = leader(&[("a", 2)]);
    fed.versioned("gated", "gpu", 1, 5);
    fed.apply_pod(pod("gated"));
    fed.versioned("open", "gpu", 1, 6);
    fed.apply_pod(ungated("open"));
    let intents = fed.decide();
    let flags: Vec<bool> = intents
        .iter()
        .map(|intent| match intent {
            Intent::Allocate { is_gated, claims, epoch, .. } => {
                let ClaimAllocation { claim, allocation } = &claims[0];
                assert_eq!(epoch, "one");
                assert!(["5", "6"].contains(&claim.resource_version.as_str()));
                let results = outcome::results(allocation);
                assert!(results[0].tolerations.is_none(), "{results:?}");
                *is_gated
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flags, [true, false]);
    // Both cards are promised.
    fed.versioned("third", "gpu", 1, 7);
    fed.apply_pod(ungated("third"));
    assert!(matches!(fed.decide().as_slice(), [Intent::Tell { .. }]));
}

#[test]
fn nothing_is_allocated_before_the_term_is_fenced() {
    let mut fed = leader(&[("a", 2)]);
    let mut old = claim("p", "gpu", 1);
    old["metadata"]["resourceVersion"] = json!("3");
    old["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "before" });
    fed.apply_claim(old);
    fed.apply_pod(pod("p"));
    let intents = fed.decide();
    let [Intent::Fence { claims, epoch }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!((epoch.as_str(), claims.len()), ("one", 1));
    let written = vec![claims[0].key.clone()];
    fed.decider.observe(fed.now, Observation::ClaimsWritten { claims: written, is_done: true }).unwrap();
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn cards_are_not_given_out_while_kube_scheduler_may_still_write() {
    let mut fed = Fed::with_nodes(&[]);
    fed.now = Time::from_secs(1_000);
    fed.apply(node("a"));
    slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.decider.lead(fed.now, "one");
    fed.decide();
    fed.listed();
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    assert_eq!(fed.allocates(), []);
    fed.now += Time::from_secs(59);
    assert_eq!(fed.allocates(), []);
    fed.now += Time::from_secs(2);
    assert!(fed.decide().contains(&Intent::ListClaims));
    fed.listed();
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_slice_that_is_published_again_asks_for_no_new_list() {
    let mut fed = leader(&[("a", 1)]);
    fed.decide();
    slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(dated(slice, 0)));
    assert_eq!(fed.decide(), []);
    // A card that was tainted later does, when its time has come.
    slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(dated(slice, 1_000)));
    assert_eq!(fed.decide(), []);
    fed.now += Time::from_secs(61);
    assert_eq!(fed.decide(), [Intent::ListClaims]);
}

#[test]
fn a_claim_whose_write_got_no_answer_keeps_its_devices_until_it_is_settled() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    let intents = fed.decide();
    let [Intent::Allocate { pod: reference, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    let failed = Observation::Carried { pod: reference.clone(), is_done: false, versions: vec![] };
    fed.decider.observe(fed.now, failed).unwrap();
    fed.versioned("other", "gpu", 1, 6);
    fed.apply_pod(pod("other"));
    let intents = fed.decide();
    let fence = intents.iter().find_map(|intent| match intent {
        Intent::Fence { claims, epoch } => Some((claims.clone(), epoch.clone())),
        _ => None,
    });
    let (claims, epoch) = fence.unwrap_or_else(|| panic!("{intents:?}"));
    assert!(epoch.starts_with("one#"), "another text, or the version would stay: {epoch}");
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. })), "{intents:?}");
    let keys = vec![claims[0].key.clone()];
    fed.decider.observe(fed.now, Observation::ClaimsWritten { claims: keys, is_done: true }).unwrap();
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_node_that_kube_scheduler_refuses_is_left_and_noted() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    let chosen = fed.allocates();
    let [(_, node, devices)] = chosen.as_slice() else { panic!("{chosen:?}") };
    let mut got = allocated(claim("p", "gpu", 1), node, devices);
    got["metadata"]["resourceVersion"] = json!("8");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    fed.apply_claim(got);
    fed.apply_pod(ungated("p"));
    // PostFilter takes the devices back.
    fed.versioned("p", "gpu", 1, 9);
    let reference = tessera_decide::PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key("p-gpus"), "8".to_owned())];
    let carried = Observation::Carried { pod: reference, is_done: true, versions };
    fed.decider.observe(fed.now, carried).unwrap();
    let intents = fed.decide();
    let noted = intents.iter().any(|intent| matches!(intent, Intent::NoteRefusals { .. }));
    assert!(noted, "{intents:?}");
    let other = intents.iter().find_map(|intent| match intent {
        Intent::Allocate { node, .. } => Some(node.clone()),
        _ => None,
    });
    assert!(other.as_ref().is_some_and(|other| other != node), "{intents:?}");
}

#[test]
fn devices_of_a_named_claim_whose_pods_are_gone_are_taken_back() {
    let mut fed = leader(&[("a", 1)]);
    let mut named = allocated(claim("x", "gpu", 1), "a", &[card(0)]);
    named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4",
        "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
    fed.apply_claim(named.clone());
    let intents = fed.decide();
    assert!(matches!(intents.as_slice(), [Intent::Clear { pod: None, .. }]), "{intents:?}");
    // One that somebody reserved, or that another made, is not ours to take.
    for (field, value) in [
        ("status", json!({ "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }] })),
        ("metadata", json!({ "annotations": {} })),
    ] {
        let mut other = named.clone();
        for (name, part) in value.as_object().unwrap() {
            other[field][name] = part.clone();
        }
        other["metadata"]["name"] = json!(format!("other-{field}"));
        fed.apply_claim(other);
        assert_eq!(fed.decide(), [], "{field}");
    }
}

#[test]
fn a_claim_for_a_managed_card_and_something_else_is_not_allocated() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply(node("b"));
    slices("b", 1, json!({ "allocation": "Native" })).into_iter().for_each(|slice| fed.apply(slice));
    // Two cards: no node has two.
    fed.versioned("p", "gpu", 2, 5);
    fed.apply_pod(pod("p"));
    assert_eq!(fed.allocates(), []);
    fed.delete(Kind::Pod, "p");
    fed.versioned("q", "gpu", 1, 6);
    fed.apply_pod(pod("q"));
    let chosen = fed.allocates();
    assert_eq!(chosen[0].1, "a", "managed where it fits: {chosen:?}");
}
