//! Pods of schedulers whose verdicts nobody reads.

use serde_json::json;
use tessera_api::steering::GATE;
use tessera_decide::{Intent, Topic};

use crate::gangs::member;
use crate::leader::{leader, ungated};

#[test]
fn a_pod_of_another_scheduler_gets_no_managed_card_and_is_told_so() {
    let mut fed = leader(&[("a", 1)]);
    fed.versioned("p", "gpu", 1, 5);
    let mut pod = ungated("p");
    pod["spec"]["schedulerName"] = json!("nobody");
    fed.apply_pod(pod.clone());
    let intents = fed.decide();
    let [Intent::Tell { topic: Topic::NotAllocated, message, .. }] = intents.as_slice() else {
        panic!("{intents:?}")
    };
    assert!(message.contains("nobody") && message.contains("managed.schedulerNames"), "{message}");
    // Nobody else would remove a gate written by hand.
    pod["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
    fed.apply_pod(pod);
    let intents = fed.decide();
    assert!(matches!(intents.as_slice(), [Intent::Release { .. }]), "{intents:?}");
    // The default name and an unset name mean kube-scheduler.
    for name in [json!("default-scheduler"), json!(null)] {
        let mut fed = leader(&[("a", 1)]);
        fed.versioned("p", "gpu", 1, 5);
        let mut pod = ungated("p");
        pod["spec"]["schedulerName"] = name;
        fed.apply_pod(pod);
        assert_eq!(fed.allocates().len(), 1);
    }
}

#[test]
fn a_gang_of_another_scheduler_gets_nothing() {
    let mut fed = leader(&[("a", 2)]);
    for number in 0..2 {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        let mut pod = member("train", number, 2);
        pod["spec"]["schedulerName"] = json!("nobody");
        fed.apply_pod(pod);
    }
    let intents = fed.decide();
    let [Intent::Tell { message, .. }] = intents.as_slice() else { panic!("{intents:?}") };
    assert!(message.contains("nobody"), "{message}");
}
