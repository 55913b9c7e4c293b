//! DeviceTaintRules count like device taints, for steered and managed cards.

use serde_json::{Value, json};
use tessera_cluster::{AllocationExt, Kind, Object};
use tessera_decide::Intent;

use crate::leader::leader;
use crate::objects::*;

/// An administrator's rule taking this card out of service on all nodes.
fn rule(device: &str, effect: &str) -> Object {
    let rule: Value = json!({ "metadata": { "name": "sick" }, "spec": {
        "deviceSelector": { "driver": DRIVER, "device": device },
        "taint": { "key": "example.com/sick", "effect": effect } } });
    read::<k8s_openapi::api::resource::v1::DeviceTaintRule>(rule).into()
}

#[test]
fn a_steered_pod_waits_for_a_card_that_a_rule_taints() {
    for effect in ["NoSchedule", "NoExecute"] {
        let mut fed = Fed::with_nodes(&[("a", 1)]);
        fed.apply(rule(&card(0), effect));
        fed.ask("job", "gpu", 1);
        assert!(matches!(fed.decide().as_slice(), [Intent::Tell { .. }]), "{effect}");
        fed.delete(Kind::DeviceTaintRule, "sick");
        assert_eq!(fed.steers(), [("job".to_owned(), "a".to_owned())], "{effect}");
    }
}

#[test]
fn a_managed_pod_gets_no_card_that_a_rule_taints() {
    let mut fed = leader(&[("a", 2)]);
    fed.apply(rule(&card(0), "NoExecute"));
    for (name, version) in [("one", 5), ("two", 6)] {
        fed.versioned(name, "gpu", 1, version);
        fed.apply_pod(pod(name));
    }
    let intents = fed.decide();
    let given: Vec<String> = intents
        .iter()
        .filter_map(|intent| match intent {
            Intent::Allocate { claims, .. } => Some(claims[0].allocation.results()[0].device.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(given, [card(1)], "{intents:?}");
}
