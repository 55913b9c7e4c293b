//! Pods that do not use their devices.

mod wanted;

use serde_json::{Value, json};
use tessera_cluster::{Key, Kind};
use tessera_decide::{Intent, Observation, Time, Topic};

use crate::gangs::member;
use crate::leader::{leader, ungated};
use crate::objects::*;

/// A leader over one node, whose pool says this of idle claims; with `allocation`.
fn pool(allocation: &str, idle: Value) -> Fed {
    let mut fed = leader(&[]);
    fed.apply(node("a"));
    let pool = json!({ "pool": "main", "allocation": allocation, "idle": idle });
    slices("a", 4, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed.decide();
    fed.listed();
    fed
}

fn evicting() -> Fed {
    pool("Managed", json!({ "action": "Evict", "graceSeconds": 600 }))
}

/// The running pod's claim with a card, idle or not.
fn held(fed: &mut Fed, pod: &str, number: usize, status: &str, reason: &str) {
    let device = card(number);
    let mut held = allocated(claim(pod, "gpu", 1), "a", std::slice::from_ref(&device));
    held["status"]["devices"] = json!([{ "driver": DRIVER, "pool": format!("{DRIVER}/a"), "device": device, "conditions": [
        { "type": "Idle", "status": status, "reason": reason, "message": "below 5% since noon", "lastTransitionTime": "2026-01-01T00:00:00Z" }] }]);
    held["status"]["reservedFor"] = json!([{ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }]);
    fed.apply_claim(held);
}

fn idle(fed: &mut Fed, pod: &str, number: usize) {
    held(fed, pod, number, "True", "BelowLimit");
}

fn running(mut pod: Value) -> Value {
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!("a");
    pod["status"]["phase"] = json!("Running");
    pod
}

fn owned(name: &str, api_version: &str, kind: &str) -> Value {
    let mut pod = running(ungated(name));
    pod["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": true }]);
    pod
}

impl Fed {
    /// What is decided, but for the lists of claims of a new pool.
    fn acts(&mut self) -> Vec<Intent> {
        let mut intents = self.decide();
        intents.retain(|intent| *intent != Intent::ListClaims);
        intents
    }
}

/// The pods told of their eviction, and the evicted ones.
fn told_and_evicted(intents: &[Intent]) -> (Vec<&str>, Vec<&str>) {
    let mut found = (Vec::new(), Vec::new());
    for intent in intents {
        match intent {
            Intent::Tell { pod, topic: Topic::Idle, .. } => found.0.push(&*pod.key.name),
            Intent::Evict { pod, .. } => found.1.push(&*pod.key.name),
            _ => {}
        }
    }
    found
}

/// Announced evictions now, and evictions when the grace is over.
fn outcome(fed: &mut Fed) -> (Vec<String>, Vec<String>) {
    let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let intents = fed.acts();
    let (told, evicted) = told_and_evicted(&intents);
    assert_eq!(evicted, [""; 0], "without an announcement");
    let told = names(told);
    fed.now += Time::from_secs(599);
    assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec![]));
    fed.now += Time::from_secs(1);
    let intents = fed.acts();
    (told, names(told_and_evicted(&intents).1))
}

#[test]
fn an_idle_pod_is_told_and_evicted_after_its_grace() {
    for allocation in ["Managed", "Native"] {
        let mut fed = pool(allocation, json!({ "action": "Evict", "graceSeconds": 600 }));
        fed.apply_pod(running(ungated("p")));
        idle(&mut fed, "p", 0);
        let intents = fed.acts();
        let [Intent::Tell { message, .. }] = intents.as_slice() else { panic!("{allocation}: {intents:?}") };
        assert!(
            message.contains("claim p-gpus: below 5% since noon. It is evicted at 00:26:40 UTC"),
            "{message}"
        );
        let due = Time::from_secs(1_600);
        while fed.now < due {
            fed.now = fed.decider.wake().unwrap().min(due);
            if fed.now < due {
                assert_eq!(fed.acts(), [], "once");
            }
        }
        let intents = fed.acts();
        let [Intent::Evict { why, .. }] = intents.as_slice() else { panic!("{allocation}: {intents:?}") };
        assert!(why.contains("below 5% since noon"), "{why}");
        fed.delete(Kind::Pod, "p");
        fed.delete(Kind::ResourceClaim, "p-gpus");
        assert_eq!(fed.acts(), []);
    }
}

#[test]
fn use_ends_the_grace() {
    let mut fed = evicting();
    fed.apply_pod(running(ungated("p")));
    idle(&mut fed, "p", 0);
    assert_eq!(told_and_evicted(&fed.acts()).0, ["p"]);
    held(&mut fed, "p", 0, "False", "InUse");
    fed.now += Time::from_secs(700);
    assert_eq!(fed.acts(), []);
    // The next time without use has its own announcement.
    idle(&mut fed, "p", 0);
    assert_eq!(outcome(&mut fed), (vec!["p".to_owned()], vec!["p".to_owned()]));
}

#[test]
fn only_the_condition_of_a_started_pod_in_an_evicting_pool_counts() {
    for (idle, status, reason) in [
        (json!({ "action": "Tell" }), "True", "BelowLimit"),
        (Value::Null, "True", "BelowLimit"),
        (json!({ "action": "Evict" }), "True", "NotStarted"),
        (json!({ "action": "Evict" }), "False", "InUse"),
    ] {
        let mut fed = pool("Managed", idle.clone());
        fed.apply_pod(running(ungated("p")));
        held(&mut fed, "p", 0, status, reason);
        assert_eq!(outcome(&mut fed), (vec![], vec![]), "{idle} {status} {reason}");
    }
}

#[test]
fn a_pod_that_would_be_made_anew_or_wants_to_keep_its_devices_stays() {
    for (api_version, kind, is_evicted) in [
        ("batch/v1", "Job", true),
        ("apps/v1", "ReplicaSet", false),
        ("apps/v1", "StatefulSet", false),
        ("apps/v1", "DaemonSet", false),
        ("example.com/v1", "Job", false),
    ] {
        let mut fed = evicting();
        fed.apply_pod(owned("p", api_version, kind));
        idle(&mut fed, "p", 0);
        assert_eq!(outcome(&mut fed).1.len(), usize::from(is_evicted), "{api_version} {kind}");
    }
    for (value, may_keep, is_evicted) in [("keep", true, false), ("keep", false, true), ("yes", true, true)] {
        let mut fed = pool("Managed", json!({ "action": "Evict", "graceSeconds": 600, "mayKeep": may_keep }));
        let mut pod = running(ungated("p"));
        pod["metadata"]["annotations"] = json!({ "gpu.tessera.dev/idle": value });
        fed.apply_pod(pod);
        idle(&mut fed, "p", 0);
        assert_eq!(outcome(&mut fed).1.len(), usize::from(is_evicted), "{value} {may_keep}");
    }
}

#[test]
fn a_gang_is_idle_when_all_of_its_pods_are() {
    let mut fed = evicting();
    for number in 0..2 {
        fed.apply_pod(running(member("g", number, 2)));
    }
    idle(&mut fed, "g-0", 0);
    held(&mut fed, "g-1", 1, "False", "InUse");
    assert_eq!(outcome(&mut fed), (vec![], vec![]));
    idle(&mut fed, "g-1", 1);
    let both = vec!["g-0".to_owned(), "g-1".to_owned()];
    assert_eq!(outcome(&mut fed), (both.clone(), both));
}

#[test]
fn a_disruption_budget_keeps_a_gang_together() {
    let mut fed = evicting();
    for number in 0..2 {
        fed.apply_pod(running(member("g", number, 2)));
        idle(&mut fed, &format!("g-{number}"), number);
    }
    let budget = |allowed: u32| {
        json!({ "metadata": { "name": "b", "namespace": "team" },
            "spec": { "selector": { "matchLabels": { "gpu.tessera.dev/group": "g" } } },
            "status": { "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2 } })
    };
    let apply = |fed: &mut Fed, allowed| {
        fed.apply(read::<tessera_cluster::workloads::DisruptionBudget>(budget(allowed)).into());
    };
    apply(&mut fed, 1);
    assert_eq!(outcome(&mut fed).1, [""; 0]);
    apply(&mut fed, 2);
    fed.now += Time::from_secs(30);
    assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec!["g-0", "g-1"]), "without another announcement");
}

#[test]
fn a_refused_eviction_is_sent_again_later_and_a_new_leader_announces_anew() {
    let mut fed = evicting();
    fed.apply_pod(running(ungated("p")));
    idle(&mut fed, "p", 0);
    fed.acts();
    fed.now += Time::from_secs(600);
    let intents = fed.acts();
    let [Intent::Evict { pod, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    fed.decider.observe(fed.now, Observation::Evicted { pod: pod.clone(), is_done: false }).unwrap();
    fed.now += Time::from_secs(30);
    assert_eq!(fed.acts(), []);
    fed.now += Time::from_secs(30);
    assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec!["p"]));
    fed.decider.follow();
    fed.now += Time::from_secs(60);
    assert_eq!(told_and_evicted(&fed.acts()), (vec![], vec![]));
    fed.decider.lead(fed.now, "two");
    assert_eq!(told_and_evicted(&fed.acts()), (vec!["p"], vec![]));
}

#[test]
fn a_claim_that_another_pod_uses_evicts_nobody() {
    let mut fed = evicting();
    fed.apply_pod(running(ungated("p")));
    fed.apply_pod(owned("q", "apps/v1", "ReplicaSet"));
    idle(&mut fed, "p", 0);
    let key = Key::new("team", "p-gpus");
    let shared = fed.decider.cluster().objects().claims[&key].clone();
    let mut shared = serde_json::to_value(shared.as_ref()).unwrap();
    let users = ["p", "q"].map(|pod| json!({ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }));
    shared["status"]["reservedFor"] = json!(users);
    fed.apply_claim(shared);
    assert_eq!(outcome(&mut fed), (vec![], vec![]));
}
