//! State of a gang's pod known from only one of its objects.

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::{member, steps};
use crate::leader::leader;
use crate::objects::*;

fn ask(fed: &mut Fed, pod: Value) {
    fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
    fed.apply_pod(pod);
}

fn ungated(mut pod: Value) -> Value {
    pod["spec"]["schedulingGates"] = json!([]);
    pod
}

/// A gang of two with lifted gates, and the node of each pod.
fn lifted(nodes: &[(&str, usize)]) -> (Fed, Vec<String>) {
    let mut fed = leader(nodes);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    assert_eq!(steps(&lifts).1.len(), 2);
    fed.written(&lifts);
    let node = |name: &str| {
        intents.iter().find_map(|intent| match intent {
            Intent::Allocate { pod, node, .. } if pod.key.name == name => Some(node.clone()),
            _ => None,
        })
    };
    let nodes = ["train-0", "train-1"].map(|name| node(name).unwrap());
    (fed, nodes.into())
}

/// The lift is acknowledged, but the watch still shows the pod with its gate.
#[test]
fn a_gate_that_was_lifted_is_not_lifted_again() {
    let (mut fed, _) = lifted(&[("a", 2)]);
    assert_eq!(fed.decide(), []);
    // One pod is observed without its gate, the other not yet.
    fed.apply_pod(ungated(member("train", 0, 2)));
    assert_eq!(fed.decide(), []);
}

/// Pods not bound yet complete the gang: nothing is taken back, and a recreated pod joins them.
#[test]
fn pods_between_the_gate_and_their_node_count_as_there() {
    let (mut fed, nodes) = lifted(&[("a", 1), ("b", 1), ("c", 1)]);
    (0..2).for_each(|number| fed.apply_pod(ungated(member("train", number, 2))));
    assert_eq!(fed.decide(), []);
    fed.delete(Kind::Node, &nodes[1]);
    fed.delete(Kind::Pod, "train-1");
    fed.delete(Kind::ResourceClaim, "train-1-gpus");
    let intents = fed.decide();
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Clear { .. })), "{intents:?}");
    ask(&mut fed, member("train", 1, 2));
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-1".to_owned()], vec![]));
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()), (vec![], vec!["train-1".to_owned()]));
}

/// The pod's node is gone or refused it, so the pod gets devices elsewhere, with its gang.
#[test]
fn devices_on_a_node_that_is_gone_or_refused_the_pod_are_given_anew() {
    for is_gone in [true, false] {
        let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
        fed.gang("train", 2, 1);
        let intents = fed.decide();
        fed.written(&intents);
        let Some(Intent::Allocate { node, pod, .. }) = intents.first() else { panic!("{intents:?}") };
        if is_gone {
            fed.delete(Kind::Node, node);
        } else {
            let number = usize::from(pod.key.name == "train-1");
            let mut refused = member("train", number, 2);
            let text = format!(r#"{{"{node}":"9999-01-01T00:00:00Z"}}"#);
            refused["metadata"]["annotations"] = json!({ "gpu.tessera.dev/refused-nodes": text });
            fed.apply_pod(refused);
        }
        let intents = fed.decide();
        let cleared: Vec<_> = intents
            .iter()
            .flat_map(|intent| match intent {
                Intent::Clear { claims, .. } => claims.clone(),
                _ => Vec::new(),
            })
            .collect();
        // Pods of the same owner were refused alike.
        assert_eq!(
            cleared.first().map(|claim| claim.key.name.clone()),
            Some(format!("{}-gpus", pod.key.name)),
            "{intents:?}"
        );
    }
}

#[test]
fn a_pod_without_the_gate_gets_its_devices_after_all_the_others() {
    let mut fed = leader(&[("a", 2)]);
    ask(&mut fed, member("train", 0, 2));
    ask(&mut fed, ungated(member("train", 1, 2)));
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-0".to_owned()], vec![]));
    fed.written(&intents);
    let intents = fed.decide();
    assert_eq!(steps(&intents), (vec!["train-1".to_owned()], vec![]));
}

#[test]
fn a_pod_that_is_ending_or_failed_is_none_of_the_gang() {
    for change in [json!({ "phase": "Failed" }), json!(null)] {
        let mut fed = leader(&[("a", 2)]);
        ask(&mut fed, member("train", 0, 2));
        let mut lost = member("train", 1, 2);
        if change.is_null() {
            lost["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        } else {
            lost["status"]["phase"] = change["phase"].clone();
        }
        ask(&mut fed, lost);
        assert_eq!(steps(&fed.decide()).0, [""; 0]);
    }
}

#[test]
fn a_gang_waits_while_one_of_its_pods_cannot_go_on() {
    type Change = fn(&mut Fed, &mut Value);
    let cases: [(&str, Change); 3] = [
        ("waits for its scheduling gate other", |_, pod| {
            pod["spec"]["schedulingGates"] =
                json!([{ "name": "other" }, { "name": tessera_api::steering::GATE }]);
        }),
        ("which others may use, too", |fed, pod| {
            let mut named = claim("x", "gpu", 1);
            named["metadata"] =
                json!({ "name": "named", "namespace": "team", "uid": "named", "resourceVersion": "4" });
            fed.apply_claim(named);
            pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "named" }]);
        }),
        ("do not exist yet", |fed, pod| {
            let template = json!({ "metadata": { "name": "t", "namespace": "team" },
                "spec": { "spec": claim("x", "gpu", 1)["spec"] } });
            fed.apply(read::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>(template).into());
            pod["status"] = json!({ "phase": "Pending" });
        }),
    ];
    for (words, change) in cases {
        let mut fed = leader(&[("a", 2)]);
        ask(&mut fed, member("train", 0, 2));
        let mut other = member("train", 1, 2);
        change(&mut fed, &mut other);
        fed.apply_pod(other);
        let intents = fed.decide();
        assert!(
            !intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. })),
            "{words}: {intents:?}"
        );
        let why: Vec<&str> = fed.decider.waiting().map(|(_, why)| why).collect();
        assert!(why.iter().all(|why| why.contains(words)), "{words}: {why:?}");
    }
}

/// The whole gang is retried together after the one pod's back-off.
#[test]
fn a_gang_waits_for_the_pause_of_a_pod_whose_write_failed() {
    let mut fed = leader(&[("a", 2)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    let Some(Intent::Allocate { pod, .. }) = lifts.first() else { panic!("{lifts:?}") };
    for intent in &lifts {
        let Intent::Allocate { pod: other, .. } = intent else { continue };
        let carried =
            Observation::Carried { pod: other.clone(), is_done: other != pod, versions: Vec::new() };
        fed.decider.observe(fed.now, carried).unwrap();
    }
    assert_eq!(steps(&fed.decide()), (vec![], vec![]));
    let again = fed.now + Time::from_secs(1);
    assert_eq!(fed.decider.wake(), Some(again));
    fed.now = again;
    assert_eq!(steps(&fed.decide()).1, std::slice::from_ref(&pod.key.name));
}

/// Nobody would recreate the pod.
#[test]
fn a_pod_without_a_controller_is_not_evicted_for_want_of_partners() {
    for has_controller in [true, false] {
        let (mut fed, nodes) = lifted(&[("a", 1), ("b", 1)]);
        for (number, node) in nodes.iter().enumerate() {
            let mut pod = member("train", number, 2);
            if !has_controller {
                pod["metadata"]["ownerReferences"][0]["controller"] = json!(false);
            }
            fed.bound(pod, node);
        }
        fed.decide();
        fed.delete(Kind::Node, &nodes[1]);
        fed.delete(Kind::Pod, "train-1");
        fed.delete(Kind::ResourceClaim, "train-1-gpus");
        let mut again = member("train", 1, 2);
        if !has_controller {
            again["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        }
        ask(&mut fed, again);
        fed.decide();
        fed.now += Time::from_secs(300);
        let intents = fed.decide();
        let is_evicted = intents.iter().any(|intent| matches!(intent, Intent::Evict { .. }));
        assert_eq!(is_evicted, has_controller, "{intents:?}");
    }
}

/// Two of three running pods are recreated, and one of the two finds no room after all.
#[test]
fn where_one_of_a_gang_runs_another_keeps_its_devices() {
    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
    fed.gang("train", 3, 1);
    for _ in 0..2 {
        let intents = fed.decide();
        fed.written(&intents);
        for intent in &intents {
            let Intent::Allocate { pod, node, lifts_gate: true, .. } = intent else { continue };
            let number = pod.key.name.strip_prefix("train-").unwrap().parse().unwrap();
            fed.bound(member("train", number, 3), node);
        }
    }
    for name in ["train-1", "train-2"] {
        fed.delete(Kind::Pod, name);
        fed.delete(Kind::ResourceClaim, &format!("{name}-gpus"));
    }
    (1..3).for_each(|number| ask(&mut fed, member("train", number, 3)));
    let intents = fed.decide();
    assert_eq!(steps(&intents).0, ["train-1", "train-2"]);
    fed.written(&intents);
    let last = intents.iter().find_map(|intent| match intent {
        Intent::Allocate { pod, node, .. } if pod.key.name == "train-2" => Some(node.clone()),
        _ => None,
    });
    fed.delete(Kind::Node, &last.unwrap());
    let cleared = |intents: &[Intent]| -> Vec<String> {
        let claims = intents.iter().filter_map(|intent| match intent {
            Intent::Clear { claims, .. } => Some(claims[0].key.name.clone()),
            _ => None,
        });
        claims.collect()
    };
    assert_eq!(cleared(&fed.decide()), ["train-2-gpus"]);
    fed.versioned("train-2", "gpu", 1, 9);
    let written = Observation::ClaimsWritten { claims: vec![key("train-2-gpus")], is_done: true };
    fed.decider.observe(fed.now, written).unwrap();
    assert_eq!(cleared(&fed.decide()), [""; 0]);
}

/// More pods of the gang may be created within ten seconds.
#[test]
fn a_gang_that_may_be_smaller_waits_ten_seconds_for_more_pods() {
    let mut fed = leader(&[("a", 4)]);
    for number in 0..2 {
        let mut pod = member("train", number, 4);
        pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("2");
        pod["metadata"]["creationTimestamp"] = crate::gangs::queue::at(1_000);
        ask(&mut fed, pod);
    }
    assert_eq!(steps(&fed.decide()).0, [""; 0]);
    assert_eq!(fed.decider.wake(), Some(Time::from_secs(1_010)));
    fed.now = Time::from_secs(1_010);
    assert_eq!(steps(&fed.decide()).0, ["train-0", "train-1"]);
}

/// Devices of a pod whose node is gone, and of the pod that cannot be placed as it is, go back, too.
#[test]
fn a_gang_that_cannot_be_placed_as_it_is_holds_nothing() {
    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1)]);
    fed.gang("train", 3, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let Some(Intent::Allocate { node, .. }) = intents.first() else { panic!("{intents:?}") };
    fed.delete(Kind::Node, node);
    let mut unfit = member("train", 2, 3);
    unfit["spec"]["schedulerName"] = json!("another");
    fed.apply_pod(unfit);
    let cleared = fed.decide().into_iter().filter_map(|intent| match intent {
        Intent::Clear { pod, .. } => pod.map(|pod| pod.key.name),
        _ => None,
    });
    assert_eq!(cleared.collect::<Vec<_>>(), ["train-0", "train-1", "train-2"]);
}

/// Another pod of the owner was refused by the node of a pod on its way: kube-scheduler's verdict on that one is awaited.
#[test]
fn a_pod_on_its_way_keeps_its_devices_on_a_node_that_refused_another() {
    let (mut fed, nodes) = lifted(&[("a", 1), ("b", 1)]);
    let mut first = ungated(member("train", 0, 2));
    first["metadata"]["annotations"] = json!({ "gpu.tessera.dev/refused-nodes":
        json!({ &nodes[1]: "1970-01-02T00:00:00Z" }).to_string() });
    fed.apply_pod(first);
    fed.apply_pod(ungated(member("train", 1, 2)));
    assert_eq!(fed.decide(), []);
}

/// Nothing is allocated, and nothing is said to fit nowhere, before this term's fence is complete.
#[test]
fn before_its_term_a_gang_waits_for_all_allocations_to_be_known() {
    let mut fed = leader(&[]);
    fed.apply(node("a"));
    slices("a", 2, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.gang("train", 2, 1);
    fed.decide();
    let reason = fed.decider.reason_of(&key("train-0")).map(ToString::to_string);
    assert_eq!(reason.as_deref(), Some("waits until the controller knows all allocations"));
}
