//! A kind whose objects cannot be listed, whatever the API server's answer: only pods possibly in a gang of this kind wait.

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_cluster::workloads::JobSet;
use tessera_decide::Intent;

use crate::gangs::member;
use crate::gangs::preemption::{running, urgent, victims, with_priority};
use crate::gangs::queue::allocated_to;
use crate::gangs::steps;
use crate::leader::leader;
use crate::objects::*;

fn asks(fed: &mut Fed, pod: Value) {
    fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
    fed.apply_pod(pod);
}

/// A JobSet's pod without gang labels of its own.
fn of_job_set(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({ "jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "set",
        "jobset.sigs.k8s.io/restart-attempt": "0", "jobset.sigs.k8s.io/replicatedjob-name": "workers" });
    pod
}

fn owned(name: &str, kind: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": kind, "name": "owner", "uid": "owner",
        "controller": true }]);
    pod
}

#[test]
fn pods_of_the_kind_wait_with_words_and_others_go_on() {
    for (kind, waiting) in [
        (Kind::JobSet, of_job_set("waits")),
        (Kind::Job, owned("waits", "Job")),
        (Kind::PodGroup, {
            let mut pod = pod("waits");
            pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "g" });
            pod
        }),
        (Kind::LeaderWorkerSet, {
            let mut pod = pod("waits");
            pod["metadata"]["labels"] = json!({ "leaderworkerset.sigs.k8s.io/name": "serve",
                "leaderworkerset.sigs.k8s.io/group-index": "0" });
            pod
        }),
    ] {
        let mut fed = leader(&[("a", 5)]);
        fed.decider.set_unlisted(&[kind].into());
        asks(&mut fed, waiting);
        asks(&mut fed, pod("alone"));
        asks(&mut fed, owned("replica", "ReplicaSet"));
        // A group named on its pods is known without any other object.
        (0..2).for_each(|number| asks(&mut fed, member("train", number, 2)));
        let intents = fed.decide();
        let mut allocated = allocated_to(&intents);
        allocated.sort_unstable();
        assert_eq!(allocated, ["alone", "replica", "train-0", "train-1"], "{kind:?}");
        let told = intents.iter().find_map(|intent| match intent {
            Intent::Tell { pod, message, .. } if pod.key.name == "waits" => Some(message.as_str()),
            _ => None,
        });
        let words = "cannot list objects of that kind";
        assert!(told.is_some_and(|told| told.contains(words) && told.contains(kind.name())), "{intents:?}");
    }
}

#[test]
fn they_go_on_when_the_kind_is_listed() {
    let mut fed = leader(&[("a", 2)]);
    fed.decider.set_unlisted(&[Kind::JobSet].into());
    ["one", "two"].into_iter().for_each(|name| asks(&mut fed, of_job_set(name)));
    assert_eq!(allocated_to(&fed.decide()), [""; 0]);
    let set = json!({ "metadata": { "name": "set", "namespace": "team", "uid": "set",
        "labels": { "gpu.tessera.dev/gang": "enabled" } },
        "spec": { "replicatedJobs": [{ "name": "workers", "template": { "spec": { "parallelism": 2 } } }] } });
    fed.apply(read::<JobSet>(set).into());
    // This JobSet is known, although others of its kind are not.
    let intents = fed.decide();
    assert_eq!(steps(&intents).0, ["one", "two"]);
    let mut fed = leader(&[("a", 1)]);
    fed.decider.set_unlisted(&[Kind::JobSet].into());
    asks(&mut fed, of_job_set("one"));
    assert_eq!(allocated_to(&fed.decide()), [""; 0]);
    // The listed kind has no such object, so its pods are no gang.
    fed.decider.set_unlisted(&[].into());
    assert_eq!(allocated_to(&fed.decide()), ["one"]);
}

#[test]
fn nobody_is_preempted_whose_gang_or_budget_is_not_known() {
    for (unlisted, expected) in [
        (None, &["low"][..]),
        (Some(Kind::JobSet), &[]),
        (Some(Kind::DisruptionBudget), &[]),
        (Some(Kind::Job), &["low"]),
    ] {
        let mut fed = leader(&[("a", 1)]);
        running(&mut fed, "low", 1, |pod| {
            pod["metadata"]["labels"] = of_job_set("low")["metadata"]["labels"].clone();
            with_priority(0)(pod);
        });
        fed.decider.set_unlisted(&unlisted.into_iter().collect());
        urgent(&mut fed, 1);
        assert_eq!(victims(&mut fed), expected, "{unlisted:?}");
    }
}
