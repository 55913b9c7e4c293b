//! A team never takes more than its limit.

use serde_json::json;
use tessera_cluster::Key;

use super::*;
use crate::gangs::steps;

#[test]
fn a_team_takes_no_more_than_its_limit_and_others_pass_it() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(2)));
    for name in ["v1", "v2", "v3"] {
        fed.ask_in("vision", name, "gpu", 1, |_| {});
    }
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    let mut started = fed.start();
    started.sort();
    assert_eq!(started, ["n1", "v1", "v2"]);
    let (kind, text) = fed.why("vision", "v3");
    assert_eq!((kind, text.as_str()), ("TeamLimit", "team vision has 2.00 of 2.00 (cards)"));
    assert_eq!(fed.start(), [""; 0]);
    fed.end("vision", "v1");
    assert_eq!(fed.start(), ["v3"]);
}

#[test]
fn partitions_count_by_memory_slices_and_memory_in_bytes() {
    for (amount, most) in [
        (json!({ "name": "cards", "unit": "Cards", "limit": 1 }), 2),
        (json!({ "name": "memory", "unit": "Memory", "limit": "125Gi" }), 3),
        (json!({ "name": "cards", "unit": "Cards", "limit": "1499m" }), 2),
    ] {
        let mut fed = teams(4, &["vision"]);
        fed.quota("vision", json!({ "amounts": [amount] }));
        for number in 0..5 {
            fed.ask_in("vision", &format!("v{number}"), "half", 1, |_| {});
        }
        assert_eq!(fed.start().len(), most, "{amount}");
    }
}

/// All pods of a gang count, and their devices are not held while it waits.
#[test]
fn a_gang_over_the_limit_holds_nothing() {
    let gang = |fed: &mut Fed, size: usize| {
        for number in 0..size {
            fed.ask_in("vision", &format!("g-{number}"), "gpu", 1, |pod| {
                pod["metadata"]["labels"] =
                    json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": size.to_string() });
            });
        }
    };
    for (limit, fits) in [(3, false), (4, true)] {
        let mut fed = teams(4, &["vision", "nlp"]);
        fed.quota("vision", cards(0, Some(limit)));
        gang(&mut fed, 4);
        let (allocated, _) = steps(&fed.decide());
        assert_eq!(allocated.len(), if fits { 4 } else { 0 });
        if !fits {
            assert_eq!(fed.why("vision", "g-0").0, "TeamLimit");
            fed.ask_in("nlp", "n1", "gpu", 4, |_| {});
            assert_eq!(fed.start(), ["n1"]);
        }
    }
}

/// What nodes have for a team at its limit is not what they have for others.
#[test]
fn a_gang_of_a_team_at_its_limit_hides_no_card_from_others() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(0)));
    for number in 0..2 {
        fed.ask_in("vision", &format!("g-{number}"), "gpu", 1, |pod| {
            pod["metadata"]["labels"] =
                json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2" });
        });
    }
    assert_eq!(fed.start(), [""; 0]);
    assert_eq!(fed.why("vision", "g-0").0, "TeamLimit");
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["n1"]);
}

/// Also where nothing is free: what becomes free is not for it.
#[test]
fn a_team_at_its_limit_keeps_no_place_on_a_full_fleet() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(2)));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.ask_in("vision", "v2", "gpu", 2, |_| {});
    fed.decide();
    let (kind, text) = fed.why("vision", "v2");
    assert_eq!(kind, "TeamLimit");
    assert!(text.contains("team vision has 2.00 of 2.00 (cards)"), "{text}");
    // Priority still makes room inside the team.
    fed.ask_in("vision", "v3", "gpu", 2, |pod| pod["spec"]["priority"] = json!(10));
    assert_eq!(fed.takes(), ["v1"]);
}

#[test]
fn an_alternative_over_the_limit_is_passed_over() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "amounts": [{ "name": "cards", "unit": "Cards", "limit": "500m" }] }));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let claim = fed.decider.cluster().objects().claims[&Key::new("vision", "v1-gpus")].clone();
    let mut claim = serde_json::to_value(claim.as_ref()).unwrap();
    claim["spec"]["devices"]["requests"] = json!([{ "name": "gpus", "firstAvailable": [
        { "name": "whole", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1 },
        { "name": "half", "deviceClassName": "half", "allocationMode": "ExactCount", "count": 1 },
    ] }]);
    fed.apply_claim(claim);
    let allocated = fed.allocates();
    assert_eq!(allocated.len(), 1);
    assert!(allocated[0].2[0].contains("mig"), "{allocated:?}");
}

#[test]
fn children_together_stay_below_their_parent() {
    let mut fed = teams(4, &["vision", "nlp"]);
    let research = json!({ "metadata": { "name": "research" }, "spec": {
        "amounts": [{ "name": "all", "unit": "Cards", "limit": 3 }] } });
    fed.apply(read::<GpuQuota>(research).into());
    for team in ["vision", "nlp"] {
        fed.quota(
            team,
            json!({ "parent": "research", "amounts": [{ "name": "cards", "unit": "Cards", "limit": 2 }] }),
        );
        for number in 0..2 {
            fed.ask_in(team, &format!("{team}-{number}"), "gpu", 1, |_| {});
        }
    }
    assert_eq!(fed.start().len(), 3);
    assert_eq!(fed.start(), [""; 0]);
}

/// Cards of nodes a and b in pools, by node and name of the device.
fn in_pools(fed: &mut Fed, pool: impl Fn(&str, &str) -> &'static str) {
    for node in ["a", "b"] {
        for slice in slices(node, 2, managed()) {
            let tessera_cluster::Object::ResourceSlice(mut slice) = slice else { panic!("a slice") };
            for device in slice.spec.devices.iter_mut().flatten() {
                let text = json!({ "string": pool(node, &device.name) });
                device.attributes.as_mut().unwrap().insert("gpuPool".to_owned(), read(text));
            }
            fed.apply(slice.into());
        }
    }
}

/// Nodes of another kind are tried, whatever ranks first.
#[test]
fn a_limit_on_one_pool_leaves_the_cards_of_another() {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    fed.namespace("vision", "vision");
    in_pools(&mut fed, |node, _| if node == "a" { "h" } else { "l" });
    let one = json!({ "name": "h", "unit": "Cards", "limit": 0, "cards": "device.attributes['gpu.tessera.dev'].gpuPool == 'h'" });
    let other = json!({ "name": "l", "unit": "Cards", "limit": 1, "cards": "device.attributes['gpu.tessera.dev'].gpuPool == 'l'" });
    fed.quota("vision", json!({ "amounts": [one, other] }));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    fed.ask_in("vision", "v2", "gpu", 1, |_| {});
    let allocated: Vec<(String, String)> =
        fed.allocates().into_iter().map(|(pod, node, _)| (pod, node)).collect();
    assert_eq!(allocated, [("v1".to_owned(), "b".to_owned())]);
}

/// Nodes alike, with cards of both: the one that ranks first has none left of those that the limit allows.
#[test]
fn a_limit_on_some_cards_of_a_node_leaves_the_others_of_another_node() {
    for held in [card(1), format!("{}-mig-3g40gb-0", card(1))] {
        let mut fed = leader(&[("a", 2), ("b", 2)]);
        for name in ["vision", "nlp"] {
            fed.namespace(name, name);
        }
        in_pools(&mut fed, |_, device| if device.starts_with(&card(0)) { "h" } else { "l" });
        let mut of_nlp = allocated(claim("n1", "gpu", 1), "a", std::slice::from_ref(&held));
        of_nlp["metadata"]["namespace"] = json!("nlp");
        fed.apply_claim(of_nlp);
        let never = json!({ "name": "h", "unit": "Cards", "limit": 0, "cards": "device.attributes['gpu.tessera.dev'].gpuPool == 'h'" });
        fed.quota("vision", json!({ "amounts": [never] }));
        fed.ask_in("vision", "v1", "gpu", 1, |_| {});
        let allocated: Vec<(String, Vec<String>)> =
            fed.allocates().into_iter().map(|(_, node, devices)| (node, devices)).collect();
        assert_eq!(allocated, [("b".to_owned(), vec![card(1)])], "held: {held}");
    }
}

#[test]
fn a_limit_holds_for_some_cards_only_and_ends_with_the_quota() {
    let never = json!({ "name": "hopper", "unit": "Cards", "limit": 0,
        "cards": "device.attributes['gpu.tessera.dev'].architecture == 'Hopper'" });
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "amounts": [never] }));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"], "the cards are of no architecture");
    fed.quota("vision", cards(0, Some(1)));
    fed.ask_in("vision", "v2", "gpu", 1, |_| {});
    assert_eq!(fed.start(), [""; 0]);
    fed.delete(Kind::GpuQuota, "vision");
    assert_eq!(fed.start(), ["v2"]);
}

/// What a namespace uses counts for the team that has it now.
#[test]
fn a_namespace_that_changes_its_team_takes_its_use_along() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(0, Some(2)));
    fed.quota("nlp", cards(0, Some(3)));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.namespace("vision", "nlp");
    for name in ["n1", "n2"] {
        fed.ask_in("nlp", name, "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 1);
}

/// A controller started anew may hear of claims before it hears of the slices, or of the quota.
#[test]
fn use_is_known_whatever_is_observed_first() {
    let mut fed = leader(&[]);
    fed.namespace("vision", "vision");
    fed.quota("vision", cards(0, Some(2)));
    let mut held = allocated(claim("v1", "half", 1), "a", &["gpu-01-00-mig-3g40gb-0".to_owned()]);
    held["metadata"]["namespace"] = json!("vision");
    fed.apply_claim(held);
    fed.decide();
    assert_eq!(
        fed.decider.quotas()["vision"].amounts[0].used,
        1_000_000,
        "a whole card until its slice is known"
    );
    fed.apply(node("a"));
    slices("a", 2, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.decide();
    assert_eq!(fed.decider.quotas()["vision"].amounts[0].used, 500_000);
    for slice in ["a-0-counters", "a-1-devices"] {
        fed.delete(Kind::ResourceSlice, slice);
    }
    fed.decide();
    assert_eq!(fed.decider.quotas()["vision"].amounts[0].used, 500_000, "as before its slice went");
    // What it kept from the team is known to be free when it ends.
    slices("b", 2, managed()).into_iter().for_each(|slice| fed.apply(slice));
    fed.apply(node("b"));
    fed.pass(100);
    fed.decide();
    fed.listed();
    fed.ask_in("vision", "v2", "gpu", 2, |_| {});
    assert_eq!(fed.start(), [""; 0]);
    fed.end("vision", "v1");
    assert_eq!(fed.start(), ["v2"]);
}
