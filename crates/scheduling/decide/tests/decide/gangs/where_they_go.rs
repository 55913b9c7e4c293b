//! Nodes chosen for the pods of a gang.

use serde_json::{Value, json};
use tessera_cluster::Object;
use tessera_decide::Intent;

use crate::gangs::{member, steps};
use crate::leader::leader;
use crate::objects::*;

/// A node with these labels.
fn labelled(name: &str, labels: &[(&str, &str)]) -> Object {
    let Object::Node(mut node) = node(name) else { unreachable!() };
    let all = node.metadata.labels.get_or_insert_default();
    all.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    node.into()
}

/// The gang's pods, by name, and their nodes.
fn placed(fed: &mut Fed) -> Vec<(String, String)> {
    let mut placed: Vec<(String, String)> = fed
        .decide()
        .into_iter()
        .filter_map(|intent| match intent {
            Intent::Allocate { pod, node, .. } => Some((pod.key.name, node)),
            _ => None,
        })
        .collect();
    placed.sort();
    placed
}

fn nodes(placed: &[(String, String)]) -> Vec<&str> {
    placed.iter().map(|(_, node)| node.as_str()).collect()
}

/// One-card nodes in racks, and racks in zones.
fn in_racks(places: &[(&str, &str, &str)]) -> Fed {
    let nodes: Vec<(&str, usize)> = places.iter().map(|(name, ..)| (*name, 1)).collect();
    let mut fed = leader(&nodes);
    for (name, rack, zone) in places {
        let labels = [("topology.kubernetes.io/rack", *rack), ("topology.kubernetes.io/zone", *zone)];
        fed.apply(labelled(name, &labels));
    }
    fed
}

#[test]
fn in_the_rack_with_the_least_room_to_spare() {
    let mut fed = in_racks(&[
        ("n1", "r1", "z"),
        ("n2", "r2", "z"),
        ("n3", "r2", "z"),
        ("n4", "r3", "z"),
        ("n5", "r3", "z"),
        ("n6", "r3", "z"),
    ]);
    fed.gang("train", 2, 1);
    assert_eq!(nodes(&placed(&mut fed)), ["n2", "n3"]);
}

#[test]
fn over_two_racks_of_one_zone_rather_than_over_two_zones() {
    let mut fed = in_racks(&[
        ("n1", "r1", "z1"),
        ("n2", "r2", "z2"),
        ("n3", "r2", "z2"),
        ("n4", "r3", "z2"),
        ("n5", "r4", "z3"),
        ("n6", "r4", "z3"),
    ]);
    fed.gang("train", 3, 1);
    assert_eq!(nodes(&placed(&mut fed)), ["n2", "n3", "n4"]);
}

#[test]
fn neighbours_in_rank_are_neighbours_in_the_rack() {
    let names: Vec<String> = (1..=12).map(|number| format!("node-{number}")).collect();
    let places: Vec<(&str, &str, &str)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| (name.as_str(), if number % 2 == 0 { "odd" } else { "even" }, "z"))
        .collect();
    let mut fed = in_racks(&places);
    fed.gang("train", 12, 1);
    let mut placed = placed(&mut fed);
    placed.sort_by_key(|(name, _)| name.strip_prefix("train-").unwrap().parse::<u32>().unwrap());
    let expected = |first: usize| (0..6).map(move |number| format!("node-{}", first + 2 * number));
    let (odd, even): (Vec<String>, Vec<String>) = (expected(1).collect(), expected(2).collect());
    let found: Vec<String> = placed.into_iter().map(|(_, node)| node).collect();
    assert!(found == [odd.clone(), even.clone()].concat() || found == [even, odd].concat(), "{found:?}");
}

fn with_domain(slice: Object, domain: &str) -> Object {
    let Object::ResourceSlice(mut slice) = slice else { unreachable!() };
    for device in slice.spec.devices.iter_mut().flatten() {
        let attribute: Value = json!({ "string": domain });
        device.attributes.get_or_insert_default().insert("nvlinkDomain".to_owned(), read(attribute));
    }
    slice.into()
}

#[test]
fn in_one_nvlink_domain_where_one_fits_whatever_the_racks() {
    let mut fed = in_racks(&[("n1", "r1", "z"), ("n2", "r1", "z"), ("n3", "r2", "z"), ("n4", "r3", "z")]);
    let fabric = "01010101-0101-0101-0101-010101010101.1";
    for (name, domain) in [("n1", "0000:01:00.0"), ("n2", "0000:01:00.0"), ("n3", fabric), ("n4", fabric)] {
        for slice in slices(name, 1, managed()) {
            fed.apply(with_domain(slice, domain));
        }
    }
    fed.gang("train", 2, 1);
    assert_eq!(nodes(&placed(&mut fed)), ["n3", "n4"]);
    // A gang without room there is placed by racks.
    fed.gang("small", 2, 1);
    assert_eq!(nodes(&placed(&mut fed)), ["n1", "n2"]);
}

#[test]
fn several_on_a_node() {
    let mut fed = leader(&[("a", 4), ("b", 4)]);
    fed.gang("train", 4, 2);
    assert_eq!(nodes(&placed(&mut fed)), ["a", "a", "b", "b"]);
}

/// In the order of their ranks, the last pod would find half of its cards on each of two nodes.
#[test]
fn large_pods_go_first_where_not_all_fit_otherwise() {
    let mut fed = leader(&[("a", 3), ("b", 3)]);
    for (number, cards) in [1, 1, 2, 2].into_iter().enumerate() {
        fed.versioned(&format!("train-{number}"), "gpu", cards, 5);
        fed.apply_pod(member("train", number, 4));
    }
    assert_eq!(steps(&fed.decide()).0.len(), 4);
}
