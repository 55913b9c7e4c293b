//! Pods kept off shared nodes by required anti-affinity. The planner foresees this and does not learn it from kube-scheduler's refusals.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_decide::Intent;

use crate::gangs::member;
use crate::leader::leader;
use crate::objects::*;

/// The pod with anti-affinity to pods with these labels.
fn apart(mut pod: Value, labels: Value) -> Value {
    pod["spec"]["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": labels } }] } });
    pod
}

fn gang_of(fed: &mut Fed, size: usize) {
    for number in 0..size {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(apart(member("train", number, size), json!({ "gpu.tessera.dev/group": "train" })));
    }
}

fn nodes(intents: &[Intent]) -> BTreeSet<&str> {
    let nodes = intents.iter().filter_map(|intent| match intent {
        Intent::Allocate { node, .. } => Some(node.as_str()),
        _ => None,
    });
    nodes.collect()
}

#[test]
fn a_gang_of_28_gets_28_nodes_in_one_round() {
    let names: Vec<String> = (0..28).map(|number| format!("n{number}")).collect();
    let all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 2)).collect();
    let mut fed = leader(&all);
    gang_of(&mut fed, 28);
    let intents = fed.decide();
    assert_eq!((intents.len(), nodes(&intents).len()), (28, 28), "{intents:?}");
    // A gang of one pod more than nodes waits as a whole, although half of the cards are free.
    let mut fed = leader(&all[..27]);
    gang_of(&mut fed, 28);
    let intents = fed.decide();
    assert!(
        matches!(intents.as_slice(), [Intent::Tell { message, .. }] if message.contains("27 of 28 pods")),
        "{intents:?}"
    );
}

/// Applies to pods without a gang, too.
#[test]
fn who_runs_keeps_others_of_its_kind_away() {
    let mut fed = leader(&[("a", 2)]);
    let of_app = |name: &str| {
        let mut pod = apart(pod(name), json!({ "app": "serve" }));
        pod["metadata"]["labels"] = json!({ "app": "serve" });
        pod
    };
    for (name, expected) in [("one", 1), ("two", 0)] {
        fed.versioned(name, "gpu", 1, 5);
        fed.apply_pod(of_app(name));
        let intents = fed.decide();
        assert_eq!(nodes(&intents).len(), expected, "{name}: {intents:?}");
        fed.written(&intents);
        if expected > 0 {
            fed.bound(of_app(name), "a");
        }
    }
    fed.delete(tessera_cluster::Kind::Pod, "one");
    assert_eq!(fed.allocates().len(), 1);
}
