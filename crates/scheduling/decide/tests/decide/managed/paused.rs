//! Pods nobody binds or nobody may change keep devices from nobody, and are tried again after growing pauses.

use serde_json::{Value, json};
use tessera_cluster::Kind;
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::gangs::preemption::{evicted, nominated};
use crate::gangs::queue::allocated_to;
use crate::leader::{leader, ungated};
use crate::objects::*;

const WHY: &str = "metadata.annotations: Too long: may not be more than 262144 bytes";

fn ask(fed: &mut Fed, pod: Value) {
    fed.versioned(pod["metadata"]["name"].as_str().unwrap(), "gpu", 1, 5);
    fed.apply_pod(pod);
}

/// Pods whose devices are taken back; applies the writes.
fn taken_back(fed: &mut Fed, intents: &[Intent]) -> Vec<String> {
    let mut pods = Vec::new();
    for intent in intents {
        let Intent::Clear { pod, claims, .. } = intent else { continue };
        pods.extend(pod.iter().map(|pod| pod.key.name.clone()));
        for reference in claims {
            let claim = fed.decider.cluster().objects().claims[&reference.key].clone();
            let mut claim = serde_json::to_value(claim.as_ref()).unwrap();
            claim["status"] = json!({});
            claim["metadata"]["resourceVersion"] = json!("7");
            fed.apply_claim(claim);
        }
        let claims = claims.iter().map(|claim| claim.key.clone()).collect();
        fed.decider.observe(fed.now, Observation::ClaimsWritten { claims, is_done: true }).unwrap();
    }
    pods
}

/// Devices are written to the claim, but neither node nor gate of the pod.
fn refused(fed: &mut Fed, intents: &[Intent]) {
    fed.written(intents);
    let pod = PodReference { key: key("frozen"), uid: "uid-frozen".to_owned() };
    let seen = [
        Observation::PodRefused { pod: pod.clone(), why: WHY.to_owned() },
        Observation::Carried { pod, is_done: false, versions: Vec::new() },
    ];
    seen.into_iter().for_each(|seen| fed.decider.observe(fed.now, seen).unwrap());
}

fn told(intents: &[Intent]) -> usize {
    let told = |intent: &&Intent| {
        matches!(intent, Intent::Tell { pod, message, .. }
        if pod.key.name == "frozen" && message.contains("Too long"))
    };
    intents.iter().filter(told).count()
}

/// Pods that get nothing from this controller are told, too, and their gates are not tried at once again.
#[test]
fn a_pod_whose_gate_cannot_be_removed_is_told_so() {
    let mut fed = leader(&[("a", 1)]);
    let mut frozen = pod("frozen");
    frozen["spec"]["schedulerName"] = json!("another");
    ask(&mut fed, frozen);
    let is_released =
        |intents: &[Intent]| intents.iter().any(|intent| matches!(intent, Intent::Release { .. }));
    let intents = fed.decide();
    assert!(is_released(&intents), "{intents:?}");
    refused(&mut fed, &[]);
    fed.now += Time::from_secs(5);
    let intents = fed.decide();
    assert!(!is_released(&intents) && told(&intents) == 1, "{intents:?}");
    fed.now += Time::from_secs(25);
    let intents = fed.decide();
    assert!(is_released(&intents), "{intents:?}");
}

#[test]
fn a_pod_that_refuses_every_write_gives_its_devices_back() {
    let mut fed = leader(&[("a", 1)]);
    ask(&mut fed, pod("frozen"));
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), ["frozen"]);
    refused(&mut fed, &intents);
    ask(&mut fed, pod("other"));
    fed.now += Time::from_secs(1);
    let intents = fed.decide();
    assert_eq!(taken_back(&mut fed, &intents), ["frozen"]);
    let intents = fed.decide();
    assert_eq!((allocated_to(&intents), told(&intents)), (vec!["other"], 1));
    fed.written(&intents);
    fed.delete(Kind::ResourceClaim, "other-gpus");
    fed.delete(Kind::Pod, "other");
    // Nobody else waits: it is tried again after growing pauses, and told once.
    fed.now += Time::from_secs(29);
    let mut intents = fed.decide();
    for pause in [60, 120, 240, 480, 600, 600] {
        assert_eq!(allocated_to(&intents), ["frozen"], "before a pause of {pause} s");
        refused(&mut fed, &intents);
        let since = fed.now;
        fed.now += Time::from_secs(30);
        let intents_of_pause = fed.decide();
        assert_eq!(taken_back(&mut fed, &intents_of_pause), ["frozen"]);
        assert_eq!(told(&fed.decide()), 0);
        fed.now = since + Time::from_secs(pause - 1);
        assert_eq!(allocated_to(&fed.decide()), [""; 0]);
        fed.now = fed.decider.wake().unwrap();
        assert_eq!(fed.now, since + Time::from_secs(pause));
        intents = fed.decide();
    }
}

/// The pod with kube-scheduler's verdict.
fn judged(pod: Value, reason: &str) -> Value {
    let mut pod = pod;
    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": reason,
        "message": "pods \"p\" is forbidden" }]);
    pod
}

/// A policy, or a volume failing to be provisioned, prevents binding on all nodes alike.
#[test]
fn a_pod_that_cannot_be_bound_is_tried_after_growing_pauses() {
    let mut fed = leader(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    ask(&mut fed, ungated("p"));
    for pause in [30, 60, 120] {
        let intents = fed.decide();
        assert_eq!(allocated_to(&intents), ["p"], "{pause}");
        fed.written(&intents);
        fed.apply_pod(ungated("p"));
        fed.now += Time::from_secs(24);
        fed.apply_pod(judged(ungated("p"), "SchedulerError"));
        fed.decide();
        fed.now += Time::from_secs(6);
        let failed = fed.now;
        let intents = fed.decide();
        assert_eq!(taken_back(&mut fed, &intents), ["p"], "{intents:?}");
        fed.now = failed + Time::from_secs(pause - 1);
        assert_eq!(allocated_to(&fed.decide()), [""; 0]);
        fed.now = failed + Time::from_secs(pause);
    }
}

/// Its scheduler may not exist any more.
#[test]
fn a_pod_judged_by_nobody_gives_its_devices_to_others() {
    for others in [false, true] {
        let mut fed = leader(&[("a", 1)]);
        ask(&mut fed, ungated("silent"));
        let intents = fed.decide();
        assert_eq!(allocated_to(&intents), ["silent"]);
        fed.written(&intents);
        let since = fed.now;
        if others {
            ask(&mut fed, pod("other"));
        }
        let mut taken = Vec::new();
        while taken.is_empty() && fed.now < since + Time::from_secs(400) {
            fed.now += Time::from_secs(10);
            let intents = fed.decide();
            taken = taken_back(&mut fed, &intents);
        }
        assert_eq!(taken.is_empty(), !others);
        assert!(fed.now >= since + Time::from_secs(300));
        let next: Vec<&str> = if others { vec!["other"] } else { vec![] };
        assert_eq!(allocated_to(&fed.decide()), next);
    }
}

/// Nobody bound it yet, so no claim is reserved.
#[test]
fn a_pod_with_devices_of_lower_priority_makes_room_before_it_is_bound() {
    let mut fed = leader(&[("a", 1)]);
    ask(&mut fed, ungated("low"));
    let intents = fed.decide();
    fed.written(&intents);
    let mut urgent = pod("urgent");
    urgent["spec"]["priority"] = json!(10);
    ask(&mut fed, urgent);
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1, "{intents:?}");
    assert_eq!(evicted(&fed.decide()), ["low"]);
}

/// A policy keeps the pods as they are.
#[test]
fn a_gang_whose_pods_refuse_every_write_gives_its_devices_back() {
    let mut fed = leader(&[("a", 1), ("b", 1)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let lifts = fed.decide();
    assert_eq!(lifts.len(), 2, "{lifts:?}");
    for number in 0..2 {
        let pod = PodReference { key: key(&format!("train-{number}")), uid: format!("uid-train-{number}") };
        let refused = Observation::PodRefused { pod: pod.clone(), why: WHY.to_owned() };
        let carried = Observation::Carried { pod, is_done: false, versions: Vec::new() };
        [refused, carried].into_iter().for_each(|seen| fed.decider.observe(fed.now, seen).unwrap());
    }
    fed.now += Time::from_secs(1);
    let intents = fed.decide();
    let mut taken = taken_back(&mut fed, &intents);
    taken.sort();
    assert_eq!(taken, ["train-0", "train-1"]);
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), [""; 0]);
    assert!(
        intents
            .iter()
            .any(|intent| matches!(intent, Intent::Tell { message, .. } if message.contains("Too long"))),
        "{intents:?}"
    );
    ask(&mut fed, pod("other"));
    assert_eq!(allocated_to(&fed.decide()), ["other"]);
}
