//! Gangs of Jobs with finished and deleted pods.

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_cluster::workloads::Job;
use tessera_decide::{Intent, Time};

use crate::gangs::steps;
use crate::leader::leader;
use crate::objects::*;

pub fn job(pods: u32, status: Value) -> tessera_cluster::Object {
    let job = json!({
        "metadata": { "name": "train", "namespace": "team", "uid": "job-train",
            "labels": { "gpu.tessera.dev/gang": "enabled" } },
        "spec": { "completionMode": "Indexed", "completions": pods, "parallelism": pods },
        "status": status,
    });
    read::<Job>(job).into()
}

pub fn of_index(index: u32, attempt: &str) -> Value {
    let mut pod = pod(&format!("train-{index}-{attempt}"));
    pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/gang": "enabled",
        "batch.kubernetes.io/job-completion-index": index.to_string() });
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "train",
        "uid": "job-train", "controller": true }]);
    pod
}

fn asks(fed: &mut Fed, pod: Value) {
    fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
    fed.apply_pod(pod);
}

/// Index 0 succeeded and its pod was deleted. The pod of index 1 failed and is recreated.
#[test]
fn a_pod_that_is_made_anew_needs_no_partner_that_is_done() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply(job(2, json!({ "completedIndexes": "0", "succeeded": 1 })));
    asks(&mut fed, of_index(1, "again"));
    let intents = fed.decide();
    assert_eq!(steps(&intents).0, ["train-1-again"]);
    fed.written(&intents);
    assert_eq!(steps(&fed.decide()).1, ["train-1-again"]);
}

/// A finished index whose pod still exists counts once.
#[test]
fn who_is_done_and_still_there_counts_once() {
    let mut fed = leader(&[("a", 3)]);
    fed.apply(job(3, json!({ "completedIndexes": "0", "succeeded": 1 })));
    let mut done = of_index(0, "done");
    done["spec"]["schedulingGates"] = json!([]);
    done["spec"]["nodeName"] = json!("a");
    done["status"]["phase"] = json!("Succeeded");
    fed.apply_pod(done);
    asks(&mut fed, of_index(1, "again"));
    assert!(!fed.decide().iter().any(|intent| matches!(intent, Intent::Allocate { .. })));
    asks(&mut fed, of_index(2, "again"));
    assert_eq!(steps(&fed.decide()).0, ["train-1-again", "train-2-again"]);
}

/// Running pods are not evicted for want of finished partners. With the finished pods the gang is complete, whether or not a
/// recreated pod finds room.
#[test]
fn a_gang_whose_others_are_done_is_not_partial() {
    let of = |index| {
        let mut pod = of_index(index, "pod");
        pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("3");
        pod
    };
    let mut fed = leader(&[("a", 3)]);
    fed.apply(job(4, json!({})));
    (0..3).for_each(|index| asks(&mut fed, of(index)));
    fed.now += Time::from_secs(20);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    fed.written(&lifts);
    (0..3).for_each(|index| fed.bound(of(index), "a"));
    // One pod is finished, and its card already belongs to another pod.
    fed.delete(Kind::Pod, "train-0-pod");
    fed.delete(Kind::ResourceClaim, "train-0-pod-gpus");
    fed.apply(job(4, json!({ "completedIndexes": "0" })));
    fed.versioned("other", "gpu", 1, 5);
    fed.apply_pod(pod("other"));
    let intents = fed.decide();
    fed.written(&intents);
    asks(&mut fed, of(3));
    fed.decide();
    fed.now += Time::from_secs(400);
    let intents = fed.decide();
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Evict { .. })), "{intents:?}");
}
