//! Managed pools: allocation of devices, its timing, and deallocation.

mod handover;
mod hostile;
mod paused;
mod promised;
mod refusals;
mod refused_claims;
mod schedulers;
mod several_claims;
mod terms;
mod verdicts;

use serde_json::json;
use tessera_cluster::{AllocationExt, Kind, Object};
use tessera_decide::{ClaimAllocation, Intent, Observation, Time, Topic};

use crate::leader::{leader, ungated};
use crate::objects::*;

/// The slice with `second` as the time of its taints.
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
            Intent::Allocate { lifts_gate, claims, epoch, .. } => {
                let ClaimAllocation { claim, allocation } = &claims[0];
                assert_eq!(epoch, "one");
                assert!(["5", "6"].contains(&claim.resource_version.as_str()));
                let results = allocation.results();
                assert!(results[0].tolerations.is_none(), "{results:?}");
                *lifts_gate
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

/// The taint outlives a card's change of allocation for a while. The report shows the change at once.
#[test]
fn a_card_that_is_tainted_but_managed_no_longer_is_not_given_out() {
    for allocation in ["Native", "Steered"] {
        let mut fed = leader(&[("a", 1), ("b", 1)]);
        let left = json!({ "pool": "main", "allocation": allocation });
        slices_with("a", 1, left.clone(), true).into_iter().for_each(|slice| fed.apply(slice));
        for (version, name) in [(5, "one"), (6, "two")] {
            fed.versioned(name, "gpu", 1, version);
            fed.apply_pod(pod(name));
        }
        let allocated = fed.allocates();
        assert_eq!(allocated.len(), 1, "{allocated:?}");
        assert_eq!(allocated[0].1, "b", "{allocation}");
        slices("b", 1, left).into_iter().for_each(|slice| fed.apply(slice));
        assert_eq!(fed.allocates(), []);
    }
}

#[test]
fn a_slice_that_is_published_again_asks_for_no_new_list() {
    let mut fed = leader(&[("a", 1)]);
    fed.decide();
    slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(dated(slice, 0)));
    assert_eq!(fed.decide(), []);
    // A list is due for a card tainted later, once its handover time is over.
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
    // PostFilter deallocates the devices.
    fed.versioned("p", "gpu", 1, 9);
    let reference = tessera_decide::PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key("p-gpus"), "8".to_owned())];
    let carried = Observation::Carried { pod: reference, is_done: true, versions };
    fed.decider.observe(fed.now, carried).unwrap();
    let intents = fed.decide();
    let noted = intents.iter().any(|intent| matches!(intent, Intent::Note { .. }));
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
    // A reserved claim, or another allocator's claim on unmanaged cards, is not ours to clear.
    for (field, value, pool) in [
        ("status", json!({ "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }] }), managed()),
        ("metadata", json!({ "annotations": {} }), steered()),
    ] {
        let mut fed = leader(&[("a", 1)]);
        slices("a", 1, pool).into_iter().for_each(|slice| fed.apply(slice));
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
fn a_claim_for_a_managed_card_and_another_drivers_device_is_told_so() {
    let mut fed = leader(&[("a", 1)]);
    let class = json!({ "metadata": { "name": "nic" }, "spec": { "selectors": [
        { "cel": { "expression": "device.driver == 'nic.example.com'" } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(class).into());
    let mut both = claim("p", "gpu", 1);
    both["metadata"]["resourceVersion"] = json!("5");
    both["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    let requests = both["spec"]["devices"]["requests"].as_array_mut().unwrap();
    requests.push(json!({ "name": "nic", "exactly": { "deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1 } }));
    fed.apply_claim(both);
    fed.apply_pod(ungated("p"));
    let intents = fed.decide();
    let [Intent::Tell { topic: Topic::NotAllocated, message, .. }] = intents.as_slice() else {
        panic!("{intents:?}")
    };
    assert!(message.contains("make it two claims"), "{message}");
}

#[test]
fn managed_cards_come_first_where_others_would_do_as_well() {
    let mut fed = leader(&[("b", 1)]);
    fed.apply(node("a"));
    slices("a", 1, json!({ "allocation": "Native" })).into_iter().for_each(|slice| fed.apply(slice));
    fed.versioned("p", "gpu", 1, 6);
    fed.apply_pod(pod("p"));
    let chosen = fed.allocates();
    assert_eq!(chosen[0].1, "b", "{chosen:?}");
}

#[test]
fn a_claim_for_a_managed_card_and_something_else_is_not_allocated() {
    let mut fed = leader(&[]);
    fed.apply(node("a"));
    let report = json!({ "cards": { "0000:01:00.0": managed(), "0000:02:00.0": {} }, "otherPairs": "SYS" })
        .to_string();
    for slice in slices("a", 2, managed()) {
        let Object::ResourceSlice(mut slice) = dated(slice, 0) else { panic!("a slice") };
        if let Some(text) =
            slice.metadata.annotations.as_mut().and_then(|all| all.get_mut("gpu.tessera.dev/node-report"))
        {
            text.clone_from(&report);
        }
        let devices = slice.spec.devices.iter_mut().flatten();
        devices.filter(|device| device.name.starts_with(&card(1))).for_each(|device| device.taints = None);
        fed.apply(slice.into());
    }
    fed.decide();
    fed.listed();
    fed.versioned("both", "gpu", 2, 5);
    fed.apply_pod(ungated("both"));
    assert_eq!(fed.allocates(), []);
    fed.delete(Kind::Pod, "both");
    fed.versioned("one", "gpu", 1, 6);
    fed.apply_pod(ungated("one"));
    assert_eq!(fed.allocates()[0].2, [card(0)]);
}

/// Other allocators of the device's shares must never use the same id.
#[test]
fn shares_get_the_ids_that_are_passed_in() {
    let id = "9b2f0c51-7f6d-4c3e-9d0a-6a3f5b1d2e4c";
    let mut fed =
        Fed { decider: tessera_decide::Decider::new(DRIVER, || id.to_owned()), now: Time::from_secs(1_000) };
    fed.apply(class());
    fed.apply(node("a"));
    for slice in slices("a", 1, managed()) {
        let Object::ResourceSlice(mut slice) = slice else { panic!("a slice") };
        for device in slice.spec.devices.iter_mut().flatten().filter(|device| device.name == card(0)) {
            device.allow_multiple_allocations = Some(true);
        }
        fed.apply(dated(slice.into(), 0));
    }
    fed.decider.lead(fed.now, "one");
    fed.decide();
    fed.listed();
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod("p"));
    let intents = fed.decide();
    let [Intent::Allocate { claims, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(claims[0].allocation.results()[0].share_id.as_deref(), Some(id));
}

/// Two pairs of cards, each with a link of its own, in a pool requiring the best.
#[test]
fn required_waits_for_the_best_connected_cards() {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    let pool = json!({ "pool": "main", "allocation": "Managed", "placement": { "topology": "Required" } });
    let cards: serde_json::Map<String, serde_json::Value> =
        (1..=4).map(|bus| (format!("0000:{bus:02x}:00.0"), pool.clone())).collect();
    let links = json!([["0000:01:00.0", "0000:02:00.0", 4], ["0000:03:00.0", "0000:04:00.0", 4]]);
    let report =
        json!({ "cards": cards, "links": links, "linkRate": 25_000, "otherPairs": "SYS" }).to_string();
    for slice in slices("a", 4, managed()) {
        let Object::ResourceSlice(mut slice) = dated(slice, 0) else { panic!("a slice") };
        if let Some(text) =
            slice.metadata.annotations.as_mut().and_then(|all| all.get_mut("gpu.tessera.dev/node-report"))
        {
            text.clone_from(&report);
        }
        fed.apply(slice.into());
    }
    fed.now = Time::from_secs(1_000);
    fed.decider.lead(fed.now, "one");
    fed.decide();
    fed.listed();
    // One card of each pair is taken, so the two free cards are not linked.
    for (name, taken) in [("x", card(0)), ("y", card(2))] {
        fed.apply_claim(allocated(claim(name, "gpu", 1), "a", &[taken]));
    }
    fed.versioned("p", "gpu", 2, 5);
    fed.apply_pod(pod("p"));
    assert!(matches!(fed.decide().as_slice(), [Intent::Tell { .. }]));
    fed.delete(Kind::ResourceClaim, "x-gpus");
    let chosen = fed.allocates();
    assert_eq!(chosen[0].2, [card(0), card(1)]);
}

/// kube-scheduler may leave the devices allocated and only report the pod as unschedulable.
#[test]
fn a_verdict_with_the_devices_still_there_takes_them_back_after_a_while() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(ungated("p"));
    let chosen = fed.allocates();
    let [(_, node, devices)] = chosen.as_slice() else { panic!("{chosen:?}") };
    let mut got = allocated(claim("p", "gpu", 1), node, devices);
    got["metadata"]["resourceVersion"] = json!("8");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    fed.apply_claim(got);
    let reference = tessera_decide::PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key("p-gpus"), "8".to_owned())];
    fed.decider.observe(fed.now, Observation::Carried { pod: reference, is_done: true, versions }).unwrap();
    let mut refused = ungated("p");
    refused["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 1 Too many pods, 1 resourceclaim not available on the node" }]);
    fed.apply_pod(refused);
    assert_eq!(fed.decide(), [], "it may not have seen the devices yet");
    fed.now += Time::from_secs(6);
    let intents = fed.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Clear { .. })), "{intents:?}");
}

#[test]
fn what_stands_on_a_pod_about_nodes_that_refused_it_holds_after_a_restart() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let mut again = pod("p");
    again["metadata"]["annotations"] = json!({ "gpu.tessera.dev/refused-nodes": r#"{"a":"9999-01-01T00:00:00Z","b":"9999-01-01T00:00:00Z"}"# });
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(again);
    assert_eq!(fed.allocates(), []);
    // No annotation can exclude a node for longer than the controller itself would.
    fed.now += Time::from_secs(1_801);
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_claim_with_which_another_pod_is_on_its_way_is_not_taken_from_it() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    let named = |status: bool| {
        let bare = claim("x", "gpu", 1);
        let mut named = if status { allocated(bare, "a", &[card(0)]) } else { bare };
        named["metadata"] = json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4",
            "annotations": { "gpu.tessera.dev/controller-epoch": "one" } });
        named
    };
    fed.apply_claim(named(true));
    let with = |name: &str, more: bool| {
        let mut pod = ungated(name);
        let mut claims = vec![json!({ "name": "gpus", "resourceClaimName": "named" })];
        if more {
            claims.push(json!({ "name": "own", "resourceClaimName": format!("{name}-gpus") }));
        }
        pod["spec"]["resourceClaims"] = json!(claims);
        pod
    };
    fed.apply_pod(with("first", false));
    assert_eq!(fed.decide(), []);
    // The second pod needs another card of the same node, where none is left.
    fed.versioned("second", "gpu", 1, 6);
    fed.apply_pod(with("second", true));
    let intents = fed.decide();
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Clear { .. })), "{intents:?}");
}
