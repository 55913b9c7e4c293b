//! Choice of the proposed node.

use serde_json::json;
use tessera_cluster::Kind;

use crate::objects::*;

fn pair(pod: &str, node: &str) -> (String, String) {
    (pod.to_owned(), node.to_owned())
}

#[test]
fn two_notebooks_leave_room_for_a_job_of_four_cards() {
    let mut fed = Fed::with_nodes(&[("a", 4), ("b", 4)]);
    fed.ask("first", "gpu", 1);
    let first = fed.steers();
    assert_eq!(first.len(), 1);
    let node = first[0].1.clone();
    fed.bind("first", "gpu", &node, &[card(0)]);
    fed.ask("second", "gpu", 1);
    assert_eq!(fed.steers(), [pair("second", &node)], "beside the first one");
    fed.ask("job", "gpu", 4);
    let other = if node == "a" { "b" } else { "a" };
    assert_eq!(fed.steers(), [pair("job", other)]);
}

#[test]
fn a_pod_on_its_way_takes_its_devices() {
    let mut fed = Fed::with_nodes(&[("a", 2)]);
    for name in ["one", "two", "zero"] {
        fed.ask(name, "gpu", 1);
    }
    assert_eq!(fed.steers().len(), 2);
    fed.delete(Kind::Pod, "one");
    fed.delete(Kind::ResourceClaim, "one-gpus");
    assert_eq!(fed.steers(), [pair("zero", "a")], "the devices of a pod that is gone are free");
}

#[test]
fn halves_go_where_a_card_is_open() {
    let mut fed = Fed::with_nodes(&[("a", 2), ("b", 2)]);
    fed.ask("one", "half", 1);
    let node = fed.steers()[0].1.clone();
    fed.bind("one", "half", &node, &[format!("{}-mig-3g40gb-0", card(0))]);
    fed.ask("two", "half", 1);
    assert_eq!(fed.steers(), [pair("two", &node)]);
}

#[test]
fn spread_takes_the_emptier_node() {
    let mut fed = Fed::with_nodes(&[]);
    let pool = json!({ "pool": "p", "allocation": "Steered", "placement": { "strategy": "Spread" } });
    for name in ["a", "b"] {
        fed.apply(node(name));
        slices(name, 4, pool.clone()).into_iter().for_each(|slice| fed.apply(slice));
    }
    fed.ask("one", "gpu", 1);
    let node = fed.steers()[0].1.clone();
    fed.bind("one", "gpu", &node, &[card(0)]);
    fed.ask("two", "gpu", 1);
    assert_ne!(fed.steers()[0].1, node);
}

#[test]
fn spread_over_zones_takes_the_emptier_zone_before_the_emptier_node() {
    let mut fed = Fed::with_nodes(&[]);
    let pool = json!({ "pool": "p", "allocation": "Steered",
        "placement": { "strategy": "Spread", "spreadTopologyKey": "zone" } });
    for (name, zone) in [("a", "east"), ("b", "east"), ("c", "west")] {
        fed.apply(labelled(name, json!({ "zone": zone })));
        slices(name, 4, pool.clone()).into_iter().for_each(|slice| fed.apply(slice));
    }
    // In use: three of the east's eight cards, two of the west's four. Node a is empty.
    for (pod, node, at) in [("one", "b", 0..3), ("two", "c", 0..2)] {
        let cards: Vec<String> = at.map(card).collect();
        fed.apply_claim(allocated(claim(pod, "gpu", cards.len()), node, &cards));
    }
    fed.ask("three", "gpu", 2);
    assert_eq!(fed.steers(), [pair("three", "a")]);
    // Now five of the east's eight cards are in use.
    fed.bind("three", "gpu", "a", &[card(0), card(1)]);
    fed.ask("four", "gpu", 1);
    assert_eq!(fed.steers(), [pair("four", "c")], "though less of a is in use");
}

#[test]
fn the_users_preference_outranks_ours() {
    let mut fed = Fed::with_nodes(&[("a", 4), ("b", 1)]);
    // Best fit would be b, but b has room only for the second alternative.
    let mut asked = claim("job", "gpu", 1);
    let alternative = |name: &str, count: usize| json!({ "name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count });
    asked["spec"]["devices"]["requests"] =
        json!([{ "name": "gpus", "firstAvailable": [alternative("two", 2), alternative("one", 1)] }]);
    fed.apply_claim(asked);
    fed.apply_pod(pod("job"));
    assert_eq!(fed.steers(), [pair("job", "a")]);
}

#[test]
fn better_linked_cards_come_first() {
    let mut fed = Fed::with_nodes(&[]);
    for (name, links) in [("plain", json!([])), ("linked", json!([["0000:01:00.0", "0000:02:00.0", 12]]))] {
        fed.apply(node(name));
        for mut slice in slices(name, 2, steered()) {
            if let tessera_cluster::Object::ResourceSlice(slice) = &mut slice
                && let Some(annotations) = &mut slice.metadata.annotations
                && let Some(report) = annotations.get_mut("gpu.tessera.dev/node-report")
            {
                let mut value: serde_json::Value = serde_json::from_str(report).unwrap();
                value["links"] = links.clone();
                *report = value.to_string();
            }
            fed.apply(slice);
        }
    }
    fed.ask("job", "gpu", 2);
    assert_eq!(fed.steers(), [pair("job", "linked")]);
}

#[test]
fn higher_priority_comes_first() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("low", "gpu", 1);
    fed.apply_claim(claim("high", "gpu", 1));
    let mut high = pod("high");
    high["spec"]["priority"] = json!(100);
    fed.apply_pod(high);
    assert_eq!(fed.steers(), [pair("high", "a")]);
}

fn lifted(name: &str) -> serde_json::Value {
    let mut lifted = pod(name);
    lifted["spec"]["schedulingGates"] = json!([]);
    lifted["status"]["nominatedNodeName"] = json!("a");
    lifted
}

#[test]
fn a_bound_pod_keeps_its_devices_until_its_claim_is_seen() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.ask("one", "gpu", 1);
    assert_eq!(fed.steers().len(), 1);
    let mut bound = lifted("one");
    bound["spec"]["nodeName"] = json!("a");
    fed.apply_pod(bound);
    fed.ask("two", "gpu", 1);
    assert_eq!(fed.steers(), [], "the claim comes by another watch");
    fed.apply_claim(allocated(claim("one", "gpu", 1), "a", &[card(0)]));
    assert_eq!((fed.steers(), fed.decider.on_their_way()), (Vec::new(), 0));
}

#[test]
fn who_comes_first_may_get_the_devices_thought_of_for_another() {
    let mut fed = Fed::with_nodes(&[("a", 2)]);
    fed.ask("one", "gpu", 1);
    fed.ask("two", "gpu", 1);
    assert_eq!(fed.steers().len(), 2);
    fed.apply_pod(lifted("one"));
    fed.apply_pod(lifted("two"));
    // kube-scheduler tried the second pod first.
    fed.apply_claim(allocated(claim("two", "gpu", 1), "a", &[card(0)]));
    fed.ask("three", "gpu", 1);
    assert_eq!(fed.steers(), [], "the other card is for the first one");
}

#[test]
fn a_pod_on_its_way_that_does_not_fit_yet_is_thought_of_later() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    fed.bind("native", "gpu", "a", &[card(0)]);
    fed.apply_claim(claim("sent", "gpu", 1));
    fed.apply_pod(lifted("sent"));
    assert_eq!(fed.steers(), []);
    fed.apply_claim(claim("native", "gpu", 1));
    fed.ask("new", "gpu", 1);
    assert_eq!(fed.steers(), [], "the one on its way comes first");
}
