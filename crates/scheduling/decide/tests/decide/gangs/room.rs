//! Pods without devices in the way of pods with managed cards.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::Intent;

use crate::gangs::preemption::{evicted, running, urgent, victims, with_priority};
use crate::leader::leader;
use crate::objects::*;

/// A pod without devices on node `a`, with so many processors of its eight.
fn without_devices(fed: &mut Fed, name: &str, cpu: &str, priority: i32, owner: &str) {
    let mut pod = pod(name);
    pod["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": true }]);
    pod["spec"] = json!({ "nodeName": "a", "priority": priority,
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] });
    fed.apply_pod(pod);
}

fn told(intents: &[Intent]) -> String {
    let told = intents.iter().map(|intent| match intent {
        Intent::Tell { message, .. } => message.clone(),
        other => panic!("{other:?}"),
    });
    told.collect()
}

/// kube-scheduler would give their room to the next pod.
#[test]
fn who_is_in_the_way_is_told_and_stays() {
    let mut fed = leader(&[("a", 2)]);
    without_devices(&mut fed, "web", "7500m", 0, "ReplicaSet");
    without_devices(&mut fed, "small", "100m", 0, "ReplicaSet");
    urgent(&mut fed, 1);
    let text = told(&fed.decide());
    assert!(text.contains("without devices") && text.contains("on a") && text.contains("team/web"), "{text}");
    assert!(!text.contains("team/small"), "{text}");
    fed.delete(Kind::Pod, "web");
    assert_eq!(fed.allocates().len(), 1);
}

/// Of a higher priority, or of a DaemonSet, whose pods come back.
#[test]
fn who_would_not_make_room_is_not_told() {
    for (priority, owner) in [(10, "ReplicaSet"), (0, "DaemonSet")] {
        let mut fed = leader(&[("a", 2)]);
        without_devices(&mut fed, "web", "7500m", priority, owner);
        urgent(&mut fed, 1);
        let text = told(&fed.decide());
        assert!(!text.contains("without devices"), "{priority} {owner}: {text}");
    }
}

/// Victims with devices are enough, though others take room, too.
#[test]
fn who_holds_no_devices_is_no_victim() {
    let mut fed = leader(&[("a", 2)]);
    without_devices(&mut fed, "web", "6", -10, "ReplicaSet");
    running(&mut fed, "low", 2, with_priority(0));
    urgent(&mut fed, 1);
    assert_eq!(victims(&mut fed), ["low"]);
    // With room for neither of both, the pod without devices is told, and nobody is evicted in vain.
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "low", 2, with_priority(0));
    without_devices(&mut fed, "web", "7500m", -10, "ReplicaSet");
    urgent(&mut fed, 1);
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0]);
    let text = told(&intents);
    assert!(text.contains("team/web") && !text.contains("team/low"), "{text}");
}

fn with_processors(cpu: &str) -> impl Fn(&mut serde_json::Value) {
    move |pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu)
}

/// The free card is enough, and the processors of the pod on the other card are missing: it goes all the same.
#[test]
fn who_holds_room_beside_free_cards_goes() {
    let mut fed = leader(&[("a", 2)]);
    running(&mut fed, "first", 1, with_priority(0));
    running(&mut fed, "low", 1, with_processors("6"));
    fed.delete(Kind::Pod, "first");
    fed.delete(Kind::ResourceClaim, "first-gpus");
    fed.versioned("urgent", "gpu", 1, 5);
    let mut pod = pod("urgent");
    pod["spec"]["priority"] = json!(10);
    with_processors("4")(&mut pod);
    fed.apply_pod(pod);
    assert_eq!(victims(&mut fed), ["low"]);
    fed.delete(Kind::Pod, "low");
    fed.delete(Kind::ResourceClaim, "low-gpus");
    assert_eq!(fed.allocates().len(), 1);
}
