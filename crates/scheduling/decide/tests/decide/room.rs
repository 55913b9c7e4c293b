//! Nodes with free devices but no room.

use serde_json::json;
use tessera_decide::Intent;

use crate::objects::*;

fn hungry(name: &str, cpu: &str, priority: i32) -> serde_json::Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    pod["spec"]["priority"] = json!(priority);
    pod
}

fn running(name: &str, cpu: &str, node: &str) -> serde_json::Value {
    let mut pod = hungry(name, cpu, 0);
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["resourceClaims"] = json!([]);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

#[test]
fn a_node_without_processors_is_left_out() {
    let mut fed = Fed::with_nodes(&[("a", 1), ("b", 4)]);
    fed.apply_pod(running("web", "7", "a"));
    fed.apply_claim(claim("job", "gpu", 1));
    fed.apply_pod(hungry("job", "2", 0));
    assert_eq!(fed.steers(), [("job".to_owned(), "b".to_owned())]);
}

#[test]
fn pods_on_their_way_take_room() {
    let mut fed = Fed::with_nodes(&[("a", 4)]);
    for name in ["one", "two", "three"] {
        fed.apply_claim(claim(name, "gpu", 1));
        fed.apply_pod(hungry(name, "3", 0));
    }
    assert_eq!(fed.steers().len(), 2, "8 processors");
}

#[test]
fn preemption_is_kube_schedulers_part() {
    for (priority, is_released) in [(0, false), (10, true)] {
        let mut fed = Fed::with_nodes(&[("a", 1)]);
        fed.apply_pod(running("web", "7", "a"));
        fed.apply_claim(claim("job", "gpu", 1));
        fed.apply_pod(hungry("job", "2", priority));
        let intents = fed.decide();
        assert_eq!(matches!(intents[..], [Intent::Release { .. }]), is_released, "{intents:?}");
    }
}

/// kube-scheduler counts a resource missing on a node as 0, except resources provided by a class.
#[test]
fn a_node_without_an_extended_resource_is_left_out() {
    let mut fed = Fed::with_nodes(&[("a", 1), ("b", 1)]);
    let with = serde_json::json!({
        "metadata": { "name": "b", "labels": { "kubernetes.io/hostname": "b" } },
        "status": { "allocatable": { "cpu": "8", "pods": "110", "example.com/efa": "4" } },
    });
    fed.apply(read::<k8s_openapi::api::core::v1::Node>(with).into());
    for name in ["one", "two"] {
        fed.apply_claim(claim(name, "gpu", 1));
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"]["requests"]["example.com/efa"] = json!("1");
        fed.apply_pod(pod);
    }
    assert_eq!(fed.steers(), [("one".to_owned(), "b".to_owned())]);
}
