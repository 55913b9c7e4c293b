//! kube-scheduler's refusals, and the pods concerned.

use serde_json::{Value, json};
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::leader::{leader, ungated};
use crate::objects::*;

fn owned(mut pod: Value) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "train",
        "uid": "job-train", "controller": true }]);
    pod
}

/// Anybody may write any uid as an owner's uid.
#[test]
fn refusals_are_of_pods_of_one_namespace() {
    let mut fed = leader(&[("a", 1)]);
    let mut elsewhere = owned(pod("p"));
    elsewhere["metadata"]["namespace"] = json!("other");
    elsewhere["metadata"]["annotations"] =
        json!({ "gpu.tessera.dev/refused-nodes": r#"{"a":"9999-01-01T00:00:00Z"}"# });
    fed.apply_pod(elsewhere);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(owned(pod("p")));
    assert_eq!(fed.allocates().len(), 1);
}

/// A policy, or a volume failing to be provisioned, prevents binding. kube-scheduler reports a SchedulerError.
#[test]
fn a_pod_that_cannot_be_bound_gives_its_devices_back() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    fed.apply_pod(ungated("p"));
    let chosen = fed.allocates();
    let [(_, node, devices)] = chosen.as_slice() else { panic!("{chosen:?}") };
    let mut got = allocated(claim("p", "gpu", 1), node, devices);
    got["metadata"]["resourceVersion"] = json!("8");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    fed.apply_claim(got);
    let reference = PodReference { key: key("p"), uid: "uid-p".to_owned() };
    let versions = vec![(key("p-gpus"), "8".to_owned())];
    fed.decider.observe(fed.now, Observation::Carried { pod: reference, is_done: true, versions }).unwrap();
    let mut refused = ungated("p");
    refused["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
        "reason": "SchedulerError", "message": "running Bind plugin \"DefaultBinder\": pods \"p\" is forbidden" }]);
    fed.apply_pod(refused);
    fed.now += Time::from_secs(6);
    let intents = fed.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Clear { .. })), "{intents:?}");
}
