//! Quotas with parents and several amounts, and which quota a namespace has.

use serde_json::json;

use super::*;

/// A quota for no namespace of its own.
fn parent(fed: &mut Fed, name: &str, spec: Value) {
    fed.apply(read::<GpuQuota>(json!({ "metadata": { "name": name }, "spec": spec })).into());
}

fn child(mut spec: Value) -> Value {
    spec["parent"] = json!("research");
    spec
}

/// Where the other would leave nothing, who starts?
fn next(fed: &mut Fed) -> Vec<String> {
    fed.ask_in("nlp", "n0", "gpu", 2, |_| {});
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    fed.start()
}

fn vision_with_two_of_four(spec: Value) -> Fed {
    let mut fed = teams(4, &["vision", "nlp"]);
    parent(&mut fed, "research", json!({}));
    fed.quota("vision", spec);
    fed.ask_in("vision", "v0", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v0"]);
    fed
}

#[test]
fn a_team_without_a_guarantee_is_not_below_it() {
    let mut fed = vision_with_two_of_four(cards(3, None));
    fed.quota("nlp", json!({}));
    assert_eq!(next(&mut fed), ["v1"]);
}

#[test]
fn a_child_below_its_guarantee_goes_first_whatever_its_parent_has() {
    assert_eq!(next(&mut vision_with_two_of_four(child(cards(3, None)))), ["v1"]);
}

#[test]
fn a_team_with_one_of_two_guarantees_goes_by_its_use() {
    let both = json!({ "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": 3 },
        { "name": "memory", "unit": "Memory", "guaranteed": "80Gi" }] });
    assert_eq!(next(&mut vision_with_two_of_four(both)), ["n0"]);
}

#[test]
fn children_share_the_turns_of_their_parent() {
    let mut fed = teams(6, &["nlp", "vision", "web"]);
    parent(&mut fed, "research", json!({}));
    for (team, spec) in [("nlp", child(json!({}))), ("vision", child(json!({}))), ("web", json!({}))] {
        fed.quota(team, spec);
        for number in 0..6 {
            fed.ask_in(team, &format!("{team}-{number}"), "gpu", 1, |_| {});
        }
    }
    let started = fed.start();
    assert_eq!(started.iter().filter(|name| name.starts_with("web")).count(), 3, "{started:?}");
}

#[test]
fn the_use_of_teams_is_not_that_of_namespaces_in_no_quota() {
    let mut fed = teams(4, &["vision", "nlp", "web"]);
    fed.quota("vision", json!({}));
    fed.quota("nlp", json!({}));
    fed.ask_in("vision", "v0", "gpu", 2, |_| {});
    fed.ask_in("nlp", "n0", "gpu", 1, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    fed.ask_in("web", "w0", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["w0"]);
}

/// The parent's guarantee limits nobody.
#[test]
fn who_does_not_borrow_gets_the_guarantee_of_its_own_team() {
    let mut fed = teams(4, &["vision"]);
    parent(&mut fed, "research", cards(1, None));
    fed.quota("vision", child(cards(2, None)));
    fed.ask_in("vision", "v0", "gpu", 2, |pod| {
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    });
    assert_eq!(fed.start(), ["v0"]);
}

#[test]
fn a_parent_with_a_parent_is_none() {
    let mut fed = teams(1, &["vision"]);
    parent(&mut fed, "company", json!({}));
    let mut research = cards(0, Some(0));
    research["parent"] = json!("company");
    parent(&mut fed, "research", research);
    fed.quota("vision", child(json!({})));
    fed.ask_in("vision", "v0", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v0"]);
    assert!(fed.decider.quotas()["vision"].problems[0].contains("has a parent itself"));
}

#[test]
fn of_two_quotas_for_a_namespace_the_older_decides() {
    let mut fed = teams(1, &["vision"]);
    for (name, created, limit) in [("a", "1970-01-01T00:02:00Z", 0), ("b", "1970-01-01T00:01:00Z", 1)] {
        let mut spec = cards(0, Some(limit));
        spec["namespaceSelector"] = json!({});
        let metadata = json!({ "name": name, "creationTimestamp": created });
        fed.apply(read::<GpuQuota>(json!({ "metadata": metadata, "spec": spec })).into());
    }
    fed.ask_in("vision", "v0", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v0"]);
}

#[test]
fn without_a_quota_nothing_is_charged() {
    let mut fed = teams(2, &["vision"]);
    fed.ask_in("vision", "v0", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v0"]);
    fed.decide();
    let charged = |fed: &Fed| fed.decider.cluster().charges().namespaces().count();
    assert_eq!(charged(&fed), 0);
    fed.quota("vision", json!({}));
    fed.decide();
    assert_eq!(charged(&fed), 1);
    fed.delete(Kind::GpuQuota, "vision");
    fed.decide();
    assert_eq!(charged(&fed), 0);
}

/// As long as nobody knows the card of a device, it counts for each amount.
#[test]
fn an_unknown_card_counts_for_every_expression() {
    let mut fed = leader(&[]);
    fed.namespace("vision", "vision");
    let hopper = json!({ "name": "hopper", "unit": "Cards", "limit": 1,
        "cards": "device.attributes['gpu.tessera.dev'].architecture == 'Hopper'" });
    fed.quota("vision", json!({ "amounts": [hopper] }));
    let mut held = allocated(claim("v1", "gpu", 1), "a", &[card(0)]);
    held["metadata"]["namespace"] = json!("vision");
    fed.apply_claim(held);
    fed.decide();
    assert_eq!(fed.decider.quotas()["vision"].amounts[0].used, 1_000_000);
}

/// A limit on some cards that is used up says nothing of others.
#[test]
fn a_used_up_limit_on_some_cards_is_not_why_a_pod_waits_on_a_full_fleet() {
    let mut fed = teams(1, &["vision", "nlp"]);
    fed.quota(
        "vision",
        json!({ "amounts": [{ "name": "hopper", "unit": "Cards", "limit": 0,
        "cards": "device.attributes['gpu.tessera.dev'].architecture == 'Hopper'" }] }),
    );
    fed.ask_in("nlp", "n0", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["n0"]);
    fed.ask_in("vision", "v0", "gpu", 1, |_| {});
    fed.decide();
    assert_eq!(fed.why("vision", "v0").0, "NoNode");
}

#[test]
fn a_steered_pod_over_the_limit_keeps_its_gate() {
    for (limit, count) in [(1, 0), (2, 1)] {
        let mut fed = Fed::with_nodes(&[("a", 2)]);
        fed.namespace("vision", "vision");
        fed.quota("vision", cards(0, Some(limit)));
        fed.ask_in("vision", "v0", "gpu", 2, |_| {});
        assert_eq!(fed.steers().len(), count);
    }
}
