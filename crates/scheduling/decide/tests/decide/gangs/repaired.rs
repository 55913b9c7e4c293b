//! A gang that lost a pod keeps its place, and waits as long as it says.

use serde_json::json;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Time};

use crate::gangs::queue::{allocated_to, ask_at, at, strict, with_placement};
use crate::gangs::{member, one_of_two_lost};
use crate::leader::leader;
use crate::objects::*;

/// A pod created between the gang and the replacement waits, too.
#[test]
fn the_repaired_node_is_for_the_gang_before_those_that_came_later() {
    for placement in [json!({}), strict()] {
        let mut fed = with_placement(&[("a", 1), ("b", 1)], placement);
        for number in 0..2 {
            let mut pod = member("train", number, 2);
            pod["metadata"]["creationTimestamp"] = at(900);
            fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
            fed.apply_pod(pod);
        }
        let intents = fed.decide();
        fed.written(&intents);
        let lifts = fed.decide();
        fed.written(&lifts);
        let mut lost = String::new();
        for intent in &intents {
            let Intent::Allocate { pod, node, .. } = intent else { panic!("{intent:?}") };
            let number = usize::from(pod.key.name == "train-1");
            let mut bound = member("train", number, 2);
            bound["metadata"]["creationTimestamp"] = at(900);
            fed.bound(bound, node);
            if number == 1 {
                lost.clone_from(node);
            }
        }
        ask_at(&mut fed, "later", 1, 950, |_| {});
        assert_eq!(allocated_to(&fed.decide()), [""; 0]);
        let mut broken = serde_json::to_value(
            &fed.decider.cluster().objects().nodes[&tessera_cluster::Key::cluster(&lost)],
        )
        .unwrap();
        broken["spec"] = json!({ "unschedulable": true });
        fed.apply(read::<k8s_openapi::api::core::v1::Node>(broken).into());
        fed.delete(Kind::Pod, "train-1");
        fed.delete(Kind::ResourceClaim, "train-1-gpus");
        let mut again = member("train", 1, 2);
        again["metadata"]["creationTimestamp"] = at(1_000);
        fed.versioned("train-1", "gpu", 1, 9);
        fed.apply_pod(again);
        assert_eq!(allocated_to(&fed.decide()), [""; 0]);
        fed.now += Time::from_secs(30);
        fed.apply(node(&lost));
        assert_eq!(allocated_to(&fed.decide()), ["train-1"]);
    }
}

#[test]
fn the_pods_say_how_long_their_gang_may_run_in_part() {
    for (annotation, expected) in [(None, 120), (Some("600"), 600), (Some("30"), 30)] {
        let mut fed = one_of_two_lost(None);
        if let Some(seconds) = annotation {
            let pod = fed.decider.cluster().objects().pods[&key("train-1")].clone();
            let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
            pod["metadata"]["annotations"] =
                json!({ "gpu.tessera.dev/group-partial-timeout-seconds": seconds });
            fed.apply_pod(pod);
        }
        fed.decide();
        let is_evicted =
            |fed: &mut Fed| fed.decide().iter().any(|intent| matches!(intent, Intent::Evict { .. }));
        fed.now += Time::from_secs(expected - 1);
        assert!(!is_evicted(&mut fed), "{annotation:?}");
        fed.now += Time::from_secs(1);
        assert!(is_evicted(&mut fed), "{annotation:?}");
    }
}

/// The replacement names this scheduler.
fn with_scheduler(fed: &mut Fed, name: &str) {
    let pod = fed.decider.cluster().objects().pods[&key("train-1")].clone();
    let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
    pod["spec"]["schedulerName"] = json!(name);
    fed.apply_pod(pod);
}

fn is_evicted(fed: &mut Fed) -> bool {
    fed.decide().iter().any(|intent| matches!(intent, Intent::Evict { .. }))
}

/// A replacement that can never get devices must not keep the rest running in part for ever.
#[test]
fn a_replacement_that_cannot_get_devices_ends_the_gang_in_time() {
    let mut fed = one_of_two_lost(None);
    with_scheduler(&mut fed, "another");
    let intents = fed.decide();
    assert!(
        intents
            .iter()
            .any(|intent| matches!(intent, Intent::Tell { message, .. } if message.contains("another"))),
        "{intents:?}"
    );
    fed.now += Time::from_secs(599);
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(1);
    assert!(is_evicted(&mut fed));
}

#[test]
fn a_replacement_that_was_mended_has_all_of_its_time() {
    let mut fed = one_of_two_lost(None);
    with_scheduler(&mut fed, "another");
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(500);
    assert!(!is_evicted(&mut fed));
    with_scheduler(&mut fed, "default-scheduler");
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(119);
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(1);
    assert!(is_evicted(&mut fed));
}

/// A gate of another controller that nobody removes counts, too, where pods run in vain.
#[test]
fn a_replacement_with_the_gate_of_another_ends_the_gang_in_time() {
    let mut fed = one_of_two_lost(None);
    let pod = fed.decider.cluster().objects().pods[&key("train-1")].clone();
    let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
    pod["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({ "name": "another" }));
    fed.apply_pod(pod);
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(61);
    assert!(!is_evicted(&mut fed));
    fed.now += Time::from_secs(539);
    assert!(is_evicted(&mut fed));
}

/// Two of three pods are enough.
#[test]
fn a_surplus_pod_that_cannot_get_devices_keeps_nobody_back() {
    let mut fed = leader(&[("a", 3)]);
    for number in 0..3 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 3);
        pod["metadata"]["labels"]["gpu.tessera.dev/group-min"] = json!("2");
        fed.apply_pod(pod);
    }
    let pod = fed.decider.cluster().objects().pods[&key("train-1")].clone();
    let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
    pod["spec"]["schedulerName"] = json!("another");
    fed.apply_pod(pod);
    let intents = fed.decide();
    assert_eq!(allocated_to(&intents), ["train-0", "train-2"]);
    assert!(
        intents.iter().any(|intent| matches!(intent, Intent::Tell { pod, .. } if pod.key.name == "train-1")),
        "{intents:?}"
    );
}
