//! Allocated pods not bound yet: kube-scheduler's verdicts, and when they count.

use serde_json::{Value, json};
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::leader::{leader, ungated};
use crate::objects::*;

fn refused(message: &str) -> Value {
    let mut pod = ungated("p");
    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": message }]);
    pod
}

fn is_cleared(intents: &[Intent]) -> bool {
    intents.iter().any(|intent| matches!(intent, Intent::Clear { .. }))
}

/// The pod's claim as observed with devices.
fn with_devices(node: &str, devices: &[String]) -> Value {
    let mut got = allocated(claim("p", "gpu", 1), node, devices);
    got["metadata"]["resourceVersion"] = json!("8");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    got
}

/// A leader whose pod got devices at second 1,000, observed `seen_after` seconds later.
fn given(pod: Value, seen_after: u64) -> Fed {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(pod);
    let chosen = fed.allocates();
    let [(_, node, devices)] = chosen.as_slice() else { panic!("{chosen:?}") };
    fed.now += Time::from_secs(seen_after);
    fed.apply_claim(with_devices(node, devices));
    let reference = PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key("p-gpus"), "8".to_owned())];
    fed.decider.observe(fed.now, Observation::Carried { pod: reference, is_done: true, versions }).unwrap();
    assert_eq!(fed.decide(), []);
    fed
}

/// kube-scheduler reports every pod waiting for managed cards as unschedulable until they are allocated.
#[test]
fn what_was_said_before_the_pod_had_devices_does_not_count_for_half_a_minute() {
    let mut fed = given(refused("cannot allocate all claims"), 20);
    fed.apply_pod(refused("cannot allocate all claims"));
    for second in [1_026, 1_049] {
        fed.now = Time::from_secs(second);
        assert!(!is_cleared(&fed.decide()), "at {second}");
    }
    assert_eq!(fed.decider.wake(), Some(Time::from_secs(1_050)), "from when the devices were seen");
    fed.now = Time::from_secs(1_050);
    assert!(is_cleared(&fed.decide()));
}

#[test]
fn a_pod_of_which_nothing_is_said_keeps_its_devices() {
    let mut fed = given(ungated("p"), 0);
    for second in [1_030, 1_060, 2_000] {
        fed.now = Time::from_secs(second);
        assert_eq!(fed.decide(), [], "at {second}");
        assert_eq!(fed.decider.wake(), Some(Time::from_secs(second + 30)), "asked again later, not at once");
    }
}

/// An earlier leader wrote the devices.
#[test]
fn a_pod_that_a_new_leader_finds_with_devices_is_on_its_way() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.apply_claim(with_devices("a", &[card(0)]));
    fed.apply_pod(refused("too many pods"));
    assert_eq!(fed.decide(), []);
    fed.now += Time::from_secs(30);
    let intents = fed.decide();
    assert!(is_cleared(&intents), "{intents:?}");
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Note { .. })), "{intents:?}");
}

/// The node's refusal is recorded on the pod.
#[test]
fn devices_of_a_node_that_refused_the_pod_are_taken_back_at_once_by_a_new_leader() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.apply_claim(with_devices("a", &[card(0)]));
    let mut pod = ungated("p");
    pod["metadata"]["annotations"] =
        json!({ "gpu.tessera.dev/refused-nodes": r#"{"a":"9999-01-01T00:00:00Z"}"# });
    fed.apply_pod(pod);
    assert!(is_cleared(&fed.decide()));
    assert!(!is_cleared(&fed.decide()), "once");
}

#[test]
fn devices_of_a_pod_of_another_scheduler_are_taken_back_by_a_new_leader() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_claim(with_devices("a", &[card(0)]));
    let mut pod = ungated("p");
    pod["spec"]["schedulerName"] = json!("nobody");
    fed.apply_pod(pod);
    assert!(is_cleared(&fed.decide()));
}
