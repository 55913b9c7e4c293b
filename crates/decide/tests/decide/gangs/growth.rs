//! Gangs that grow while they run.

use serde_json::json;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_cluster::Kind;
use tessera_decide::{Intent, Time};

use crate::gangs::{member, steps};
use crate::leader::leader;
use crate::objects::*;

/// A member of a gang of `size` that started with `formed` pods and runs on the node.
fn running(number: usize, size: usize, formed: usize, node: &str) -> serde_json::Value {
    let mut pod = member("train", number, size);
    pod["metadata"]["annotations"] = json!({ FORMED_ANNOTATION: formed.to_string() });
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A gang of two runs on nodes of one card each, and grows to `size`.
fn grown(size: usize, nodes: &[(&str, usize)]) -> Fed {
    let mut fed = leader(nodes);
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        let name = format!("train-{number}");
        fed.apply_claim(allocated(claim(&name, "gpu", 1), node, &[card(0)]));
        fed.apply_pod(running(number, size, 2, node));
    }
    for number in 2..size {
        fed.versioned(&format!("train-{number}"), "gpu", 1, 5);
        fed.apply_pod(member("train", number, size));
    }
    fed
}

#[test]
fn a_gang_is_lifted_with_the_number_of_pods_that_start_together() {
    let mut fed = leader(&[("a", 2)]);
    fed.gang("train", 2, 1);
    let intents = fed.decide();
    fed.written(&intents);
    let formed = fed.decide().into_iter().filter_map(|intent| match intent {
        Intent::Allocate { formed, .. } => Some(formed),
        _ => None,
    });
    assert_eq!(formed.collect::<Vec<_>>(), [Some(2), Some(2)]);
}

#[test]
fn a_gang_that_cannot_grow_goes_on_as_it_was() {
    let mut fed = grown(3, &[("a", 1), ("b", 1)]);
    for minutes in 0..20 {
        fed.now = Time::from_secs(1_000 + 60 * minutes);
        let intents = fed.decide();
        assert!(intents.iter().all(|intent| matches!(intent, Intent::Tell { .. })), "{intents:?}");
    }
}

#[test]
fn the_added_pods_start_together() {
    let mut fed = grown(4, &[("a", 1), ("b", 1), ("c", 1)]);
    assert!(fed.decide().iter().all(|intent| matches!(intent, Intent::Tell { .. })));
    let mut fed = grown(4, &[("a", 1), ("b", 1), ("c", 2)]);
    let (allocated, _) = steps(&fed.decide());
    assert_eq!(allocated, ["train-2", "train-3"]);
}

/// Of the three pods without devices one fits. It takes the place of the lost one.
#[test]
fn a_growing_gang_gets_its_lost_pod_back_first() {
    let mut fed = grown(4, &[("a", 1), ("b", 1)]);
    fed.delete(Kind::Pod, "train-1");
    fed.delete(Kind::ResourceClaim, "train-1-gpus");
    fed.versioned("train-1", "gpu", 1, 6);
    let mut again = member("train", 1, 4);
    again["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
    fed.apply_pod(again);
    let intents = fed.decide();
    let (allocated, _) = steps(&intents);
    assert_eq!(allocated, ["train-1"]);
    fed.written(&intents);
    let (allocated, lifted) = steps(&fed.decide());
    assert_eq!((allocated, lifted), (vec![], vec!["train-1".to_owned()]));
}
