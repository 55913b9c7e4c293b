//! Devices with failed preparation.

use serde_json::{Value, json};
use tessera_decide::{Intent, Observation, PodReference, Time};

use crate::leader::{leader, ungated};
use crate::objects::*;

/// A pod's claim with a card whose preparation has failed since `second`.
fn failed(pod: &str, device: &str, reason: &str, second: i64, is_reserved: bool) -> Value {
    let mut failed = allocated(claim(pod, "gpu", 1), "a", &[device.to_owned()]);
    failed["metadata"]["resourceVersion"] = json!("7");
    failed["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    let time = k8s_openapi::jiff::Timestamp::from_second(second).unwrap().to_string();
    failed["status"]["devices"] = json!([{ "driver": DRIVER, "pool": format!("{DRIVER}/a"), "device": device, "conditions": [
        { "type": "Ready", "status": "False", "reason": reason, "message": "the card needs a reset", "lastTransitionTime": time }] }]);
    if is_reserved {
        failed["status"]["reservedFor"] =
            json!([{ "resource": "pods", "name": pod, "uid": format!("uid-{pod}") }]);
    }
    failed
}

/// A pod stuck on its node before starting, with or without a controller.
fn stuck(name: &str, owner: Option<&str>) -> Value {
    let mut stuck = ungated(name);
    stuck["spec"]["nodeName"] = json!("a");
    if let Some(owner) = owner {
        stuck["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true }]);
    }
    stuck
}

/// Advances the time until claims with failed preparation are healed.
fn wait(fed: &mut Fed) {
    fed.now += Time::from_secs(300);
}

fn evicted(intents: &[Intent]) -> Vec<&str> {
    let mut names = Vec::new();
    for intent in intents {
        if let Intent::Evict { pod, .. } = intent {
            names.push(pod.key.name.as_str());
        }
    }
    names
}

#[test]
fn after_five_minutes_the_pod_is_evicted_and_the_card_left_alone() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply_pod(stuck("p", Some("replicas")));
    fed.apply_claim(failed("p", "gpu-01-00", "ResetNeeded", 1_000, true));
    fed.now = Time::from_secs(1_299);
    assert_eq!(fed.decide(), []);
    assert_eq!(fed.decider.wake(), Some(Time::from_secs(1_300)));
    fed.now = Time::from_secs(1_300);
    let intents = fed.decide();
    let [Intent::Evict { pod, why }] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!(pod.key, key("p"));
    assert_eq!(
        why,
        "its devices cannot be prepared since 5 min, so that another pod may get others: gpu-01-00: the card needs a reset"
    );
    fed.decider.observe(fed.now, Observation::Evicted { pod: pod.clone(), is_done: true }).unwrap();
    fed.delete(tessera_cluster::Kind::Pod, "p");
    fed.delete(tessera_cluster::Kind::ResourceClaim, "p-gpus");
    for name in ["next", "one-more"] {
        fed.versioned(name, "gpu", 1, 8);
        fed.apply_pod(ungated(name));
    }
    let chosen = fed.allocates();
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    assert_eq!(chosen[0].2, ["gpu-02-00"]);
    // An hour later the card is tried again.
    fed.now += Time::from_secs(3_601);
    let chosen = fed.allocates();
    assert_eq!(chosen.first().map(|chosen| chosen.2.clone()), Some(vec!["gpu-01-00".to_owned()]));
}

/// Failure times use the node's clock. After a restart, failed claims wait their full time again, but their cards are avoided at once.
#[test]
fn a_node_whose_clock_is_minutes_off_starts_no_eviction() {
    for second in [0, 100, 5_000] {
        let mut fed = leader(&[("a", 2)]);
        fed.apply_pod(stuck("p", Some("replicas")));
        fed.apply_claim(failed("p", "gpu-01-00", "ResetNeeded", second, true));
        for passed in (0..300).step_by(30) {
            fed.now = Time::from_secs(1_000 + passed);
            assert_eq!(evicted(&fed.decide()), [""; 0], "failed at {second}, {passed} s ago");
        }
        fed.now = Time::from_secs(1_300);
        assert_eq!(evicted(&fed.decide()), ["p"], "failed at {second}");
    }
}

#[test]
fn a_card_that_another_claim_holds_is_not_left_alone_after_that() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_pod(stuck("p", Some("replicas")));
    fed.apply_claim(failed("p", "gpu-01-00", "Held", 0, true));
    wait(&mut fed);
    assert_eq!(evicted(&fed.decide()), ["p"]);
    fed.delete(tessera_cluster::Kind::Pod, "p");
    fed.delete(tessera_cluster::Kind::ResourceClaim, "p-gpus");
    fed.versioned("next", "gpu", 1, 8);
    fed.apply_pod(ungated("next"));
    assert_eq!(fed.allocates().len(), 1);
}

#[test]
fn a_pod_that_nobody_makes_anew_stays_and_so_does_one_that_runs() {
    let mut fed = leader(&[("a", 3)]);
    fed.apply_pod(stuck("alone", None));
    fed.apply_claim(failed("alone", "gpu-01-00", "ResetNeeded", 0, true));
    let mut runs = stuck("runs", Some("replicas"));
    runs["status"]["phase"] = json!("Running");
    fed.apply_pod(runs);
    fed.apply_claim(failed("runs", "gpu-02-00", "ResetNeeded", 0, true));
    // Another device would not help this pod.
    fed.apply_pod(stuck("wrong", Some("replicas")));
    fed.apply_claim(failed("wrong", "gpu-03-00", "InvalidConfig", 0, true));
    wait(&mut fed);
    assert_eq!(evicted(&fed.decide()), [""; 0]);
}

#[test]
fn pods_of_one_owner_are_evicted_three_times_which_outlives_the_controller() {
    let mut fed = leader(&[("a", 8)]);
    for number in 0..4 {
        let name = format!("p{number}");
        fed.apply_pod(stuck(&name, Some("replicas")));
        fed.apply_claim(failed(&name, &card(number), "ResetNeeded", 0, true));
        wait(&mut fed);
        let intents = fed.decide();
        assert_eq!(evicted(&intents).len(), usize::from(number < 3), "{intents:?}");
        for intent in intents {
            if let Intent::Evict { pod, .. } = intent {
                // The pod may be gone before the eviction is acknowledged.
                fed.delete(tessera_cluster::Kind::Pod, &name);
                fed.decider.observe(fed.now, Observation::Evicted { pod, is_done: true }).unwrap();
            } else if let Intent::Note { evictions, .. } = intent {
                assert_eq!(evictions, number as u32);
            }
        }
        fed.delete(tessera_cluster::Kind::Pod, &name);
        fed.delete(tessera_cluster::Kind::ResourceClaim, &format!("{name}-gpus"));
    }
    let mut after = leader(&[("a", 8)]);
    let mut noted = stuck("p4", Some("replicas"));
    noted["metadata"]["annotations"] = json!({ "gpu.tessera.dev/evictions": "3" });
    after.apply_pod(noted);
    after.apply_claim(failed("p4", &card(0), "ResetNeeded", 0, true));
    wait(&mut after);
    assert_eq!(evicted(&after.decide()), [""; 0]);
    // Another annotation written to the pod keeps the count.
    let mut refused = ungated("p5");
    refused["metadata"] = json!({ "name": "p5", "namespace": "team", "uid": "uid-p5",
        "annotations": { "gpu.tessera.dev/evictions": "2" } });
    after.versioned("p5", "gpu", 1, 9);
    after.apply_pod(refused.clone());
    let chosen = after.allocates();
    let (node, devices) = (&chosen[0].1, &chosen[0].2);
    let mut got = allocated(claim("p5", "gpu", 1), node, devices);
    got["metadata"]["resourceVersion"] = json!("10");
    got["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    after.apply_claim(got);
    let reference = PodReference { key: key("p5"), uid: "uid-p5".to_owned() };
    let versions = vec![(key("p5-gpus"), "10".to_owned())];
    after
        .decider
        .observe(after.now, Observation::Carried { pod: reference, is_done: true, versions })
        .unwrap();
    after.versioned("p5", "gpu", 1, 11);
    let intents = after.decide();
    let noted = intents.iter().any(|intent| matches!(intent, Intent::Note { evictions: 2, .. }));
    assert!(noted, "{intents:?}");
}

#[test]
fn a_refused_eviction_is_tried_again() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_pod(stuck("p", Some("replicas")));
    fed.apply_claim(failed("p", "gpu-01-00", "ResetNeeded", 0, true));
    wait(&mut fed);
    assert_eq!(evicted(&fed.decide()), ["p"]);
    let pod = PodReference { key: key("p"), uid: "uid-p".to_owned() };
    fed.decider.observe(fed.now, Observation::Evicted { pod, is_done: false }).unwrap();
    assert_eq!(fed.decide(), []);
    fed.now += Time::from_secs(31);
    assert_eq!(evicted(&fed.decide()), ["p"]);
}

#[test]
fn a_named_claim_that_failed_is_taken_back_once_nobody_has_reserved_it() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply_pod(ungated("p"));
    fed.apply_claim(failed("p", "gpu-01-00", "ResetNeeded", 0, false));
    wait(&mut fed);
    let intents = fed.decide();
    assert!(matches!(intents.as_slice(), [Intent::Clear { .. }]), "{intents:?}");
}

#[test]
fn a_device_that_was_prepared_after_all_is_as_good_as_any() {
    let mut fed = leader(&[("a", 1)]);
    fed.apply_pod(stuck("p", Some("replicas")));
    fed.apply_claim(failed("p", "gpu-01-00", "ResetNeeded", 1_000, true));
    let mut mended = failed("p", "gpu-01-00", "Prepared", 1_100, true);
    mended["status"]["devices"][0]["conditions"][0]["status"] = json!("True");
    fed.apply_claim(mended);
    fed.now = Time::from_secs(2_000);
    assert_eq!(fed.decide(), []);
    assert_eq!(fed.decider.wake(), None);
}
