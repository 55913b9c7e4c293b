//! Conditions for lifting the gate.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, PodReference};

use crate::objects::*;

fn only(mut intents: Vec<Intent>) -> Intent {
    assert_eq!(intents.len(), 1, "{intents:?}");
    intents.remove(0)
}

#[test]
fn other_gates_come_first() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.apply_claim(claim("job", "gpu", 1));
    let mut gated = pod("job");
    gated["spec"]["schedulingGates"] =
        json!([{ "name": "kueue.x-k8s.io/admission" }, gated["spec"]["schedulingGates"][0]]);
    fed.apply_pod(gated);
    assert_eq!(fed.decide(), []);
    fed.apply_pod(pod("job"));
    assert!(matches!(only(fed.decide()), Intent::Steer { .. }));
}

#[test]
fn a_pod_that_asks_for_nothing_of_ours_is_released() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let mut none = pod("none");
    none["spec"]["resourceClaims"] = json!([]);
    fed.apply_pod(none);
    assert!(matches!(only(fed.decide()), Intent::Release { .. }));
    let other = json!({ "metadata": { "name": "nic" }, "spec": { "selectors": [
        { "cel": { "expression": "device.driver == 'nic.example.com'" } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(other).into());
    fed.delete(Kind::Pod, "none");
    fed.ask("nic", "nic", 1);
    assert!(matches!(only(fed.decide()), Intent::Release { .. }));
}

#[test]
fn a_native_pool_is_left_to_kube_scheduler() {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    slices("a", 1, json!({})).into_iter().for_each(|slice| fed.apply(slice));
    fed.ask("job", "gpu", 1);
    assert!(matches!(only(fed.decide()), Intent::Release { .. }));
}

#[test]
fn what_does_not_fit_waits_and_is_told_once() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 2);
    let Intent::Tell { message, .. } = only(fed.decide()) else { panic!("it is told why it waits") };
    assert!(message.contains("not enough free devices"), "{message}");
    fed.apply_pod(pod("job"));
    assert_eq!(fed.decide(), []);
    fed.apply(node("b"));
    slices("b", 2, steered()).into_iter().for_each(|slice| fed.apply(slice));
    assert!(matches!(only(fed.decide()), Intent::Steer { node, .. } if node == "b"));
}

#[test]
fn the_claim_of_a_template_that_is_not_there_yet_counts() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let mut early = pod("job");
    early["status"] = json!({ "phase": "Pending" });
    fed.apply_pod(early);
    assert!(matches!(only(fed.decide()), Intent::Tell { .. }), "there is no template");
    let template = json!({ "metadata": { "name": "t", "namespace": "team" },
        "spec": { "spec": claim("job", "gpu", 1)["spec"] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::ResourceClaimTemplate>(template).into());
    assert!(matches!(only(fed.decide()), Intent::Steer { .. }));
}

#[test]
fn a_selector_that_fails_is_left_to_kube_scheduler_and_holds_nobody_up() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let bad = json!({ "metadata": { "name": "bad" }, "spec": { "selectors": [
        { "cel": { "expression": "device.attributes['no.such'].thing == 1" } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(bad).into());
    fed.ask("bad", "bad", 1);
    fed.ask("good", "gpu", 1);
    let intents = fed.decide();
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Release { pod, .. } if pod.key.name == "bad"))
    );
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Steer { pod, .. } if pod.key.name == "good"))
    );
}

#[test]
fn a_failed_write_is_decided_anew_after_a_pause() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers().len(), 1);
    assert_eq!(fed.decide(), [], "it is on its way");
    let reference = PodReference { key: key("job"), uid: "uid-job".to_owned() };
    fed.decider
        .observe(fed.now, Observation::Carried { pod: reference, is_done: false, versions: vec![] })
        .unwrap();
    assert_eq!(fed.decide(), []);
    fed.now = fed.decider.wake().expect("it wants to try again");
    assert_eq!(fed.steers().len(), 1);
}

#[test]
fn a_replica_that_takes_over_counts_what_is_on_its_way() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.apply_claim(claim("old", "gpu", 1));
    let mut sent = pod("old");
    sent["spec"]["schedulingGates"] = json!([]);
    sent["status"]["nominatedNodeName"] = json!("a");
    fed.apply_pod(sent.clone());
    fed.ask("new", "gpu", 1);
    assert_eq!(fed.steers(), []);
    sent["status"]["conditions"] =
        json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
    fed.apply_pod(sent);
    assert_eq!(fed.steers(), [("new".to_owned(), "a".to_owned())]);
}

#[test]
fn a_node_that_kube_scheduler_refused_is_left_out_for_the_owners_next_pods() {
    let mut fed = Fed::with_nodes(&[("a", 1), ("b", 4)]);
    let owned = |name: &str| {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }]);
        pod
    };
    fed.apply_claim(claim("one", "gpu", 1));
    fed.apply_pod(owned("one"));
    assert_eq!(fed.steers(), [("one".to_owned(), "a".to_owned())]);
    // kube-scheduler chose another node, for instance for a topology spread constraint.
    let mut bound = owned("one");
    bound["spec"]["schedulingGates"] = json!([]);
    bound["spec"]["nodeName"] = json!("b");
    fed.apply_claim(allocated(claim("one", "gpu", 1), "b", &[card(0)]));
    fed.apply_pod(bound);
    fed.apply_claim(claim("two", "gpu", 1));
    fed.apply_pod(owned("two"));
    assert_eq!(fed.steers(), [("two".to_owned(), "b".to_owned())]);
    fed.ask("stranger", "gpu", 1);
    assert_eq!(fed.steers(), [("stranger".to_owned(), "a".to_owned())]);
}

#[test]
fn a_claim_of_several_pods_brings_them_to_one_node() {
    let mut fed = Fed::with_nodes(&[("a", 1), ("b", 4)]);
    let mut shared = claim("x", "gpu", 1);
    shared["metadata"] = json!({ "name": "shared", "namespace": "team" });
    fed.apply_claim(shared.clone());
    let user = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimName": "shared" }]);
        pod
    };
    fed.apply_pod(user("one"));
    fed.apply_pod(user("two"));
    assert_eq!(fed.steers(), [("one".to_owned(), "a".to_owned())], "the second waits for the first");
    fed.apply_claim(allocated(shared, "a", &[card(0)]));
    let intents = fed.decide();
    assert!(matches!(only(intents), Intent::Release { pod, .. } if pod.key.name == "two"));
}

#[test]
fn a_release_is_said_once() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let mut none = pod("none");
    none["spec"]["resourceClaims"] = json!([]);
    fed.apply_pod(none.clone());
    assert!(matches!(only(fed.decide()), Intent::Release { .. }));
    fed.apply(node("b"));
    slices("b", 2, steered()).into_iter().for_each(|slice| fed.apply(slice));
    fed.apply_pod(none);
    assert_eq!(fed.decide(), [], "its gate is being lifted");
    let reference = PodReference { key: key("none"), uid: "uid-none".to_owned() };
    fed.decider
        .observe(fed.now, Observation::Carried { pod: reference, is_done: false, versions: vec![] })
        .unwrap();
    fed.now = fed.decider.wake().expect("it wants to try again");
    assert!(matches!(only(fed.decide()), Intent::Release { .. }));
}

#[test]
fn a_pod_seen_without_the_gate_is_on_its_way_even_if_the_answer_was_lost() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers().len(), 1);
    let mut lifted = pod("job");
    lifted["spec"]["schedulingGates"] = json!([]);
    lifted["status"]["nominatedNodeName"] = json!("a");
    fed.apply_pod(lifted);
    let reference = PodReference { key: key("job"), uid: "uid-job".to_owned() };
    fed.decider
        .observe(fed.now, Observation::Carried { pod: reference, is_done: false, versions: vec![] })
        .unwrap();
    fed.ask("other", "gpu", 1);
    assert_eq!(fed.steers(), []);
}

#[test]
fn a_failure_of_a_pod_before_is_not_its_successors() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers().len(), 1);
    let reference = PodReference { key: key("job"), uid: "uid-before".to_owned() };
    fed.decider
        .observe(fed.now, Observation::Carried { pod: reference, is_done: false, versions: vec![] })
        .unwrap();
    assert_eq!((fed.decide(), fed.decider.wake()), (Vec::new(), None));
}

#[test]
fn an_error_on_a_node_ends_with_its_cause() {
    let mut fed = Fed::with_nodes(&[("a", 1), ("b", 4)]);
    let [_, good] = slices("b", 4, steered());
    let mut bad = good.clone();
    if let tessera_cluster::Object::ResourceSlice(slice) = &mut bad {
        slice.spec.devices.iter_mut().flatten().for_each(|device| device.attributes = None);
    }
    fed.apply(bad);
    fed.ask("early", "gpu", 1);
    assert!(matches!(only(fed.decide()), Intent::Release { .. }), "kube-scheduler would fail on b");
    fed.apply(good);
    fed.ask("late", "gpu", 1);
    assert_eq!(fed.steers(), [("late".to_owned(), "a".to_owned())]);
}
