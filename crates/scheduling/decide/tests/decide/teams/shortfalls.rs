//! Guarantees that cannot be kept are told.

use super::*;

const NATIVE: &str = "device.attributes['gpu.tessera.dev'].gpuPool == 'native'";

fn uncovered(fed: &mut Fed, team: &str) -> Vec<String> {
    fed.decide();
    fed.decider.quotas_with_shortfalls()[team].uncovered.clone()
}

fn unenforceable(fed: &mut Fed, team: &str) -> Vec<String> {
    fed.decide();
    fed.decider.quotas_with_shortfalls()[team].unenforceable.clone()
}

/// Adds a node of two cards that kube-scheduler gives out.
fn native_node(fed: &mut Fed) {
    fed.apply(node("b"));
    let pool = json!({ "pool": "native", "allocation": "Native" });
    slices("b", 2, pool).into_iter().for_each(|slice| fed.apply(slice));
}

fn hold_natively(fed: &mut Fed, namespace: &str) {
    let mut held = allocated(claim("held", "gpu", 2), "b", &[card(0), card(1)]);
    held["metadata"]["namespace"] = json!(namespace);
    fed.apply_claim(held);
}

#[test]
fn more_is_guaranteed_than_exists() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(3, None));
    assert_eq!(uncovered(&mut fed, "vision"), [""; 0]);
    fed.quota("nlp", cards(2, None));
    for team in ["vision", "nlp"] {
        assert_eq!(uncovered(&mut fed, team), ["cards: 5.00 guaranteed to all teams, 4.00 exist"], "{team}");
    }
    native_node(&mut fed);
    assert_eq!(uncovered(&mut fed, "nlp"), [""; 0]);
}

#[test]
fn guarantees_on_the_same_cards_count_once() {
    let mut fed = teams(4, &["vision", "nlp", "research"]);
    native_node(&mut fed);
    let memory = json!({ "name": "memory", "unit": "Memory", "guaranteed": "160Gi", "cards": NATIVE });
    let amounts = json!([
        { "name": "all", "unit": "Cards", "guaranteed": 5 },
        { "name": "native", "unit": "Cards", "guaranteed": 2, "cards": NATIVE },
        memory,
    ]);
    fed.quota("vision", json!({ "amounts": amounts, "parent": "research" }));
    fed.quota("research", json!({ "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": 6 }] }));
    for team in ["vision", "research"] {
        assert_eq!(uncovered(&mut fed, team), [""; 0], "{team}");
    }
    let native = json!({ "name": "some", "unit": "Cards", "guaranteed": 1, "cards": NATIVE });
    let absent = json!({ "name": "absent", "unit": "Cards", "guaranteed": 1,
        "cards": "device.attributes['gpu.tessera.dev'].productName == 'H100'" });
    fed.quota("nlp", json!({ "amounts": [native, absent] }));
    let of_nlp = [
        "absent: 1.00 guaranteed to all teams, 0.00 exist",
        "some: 3.00 guaranteed to all teams, 2.00 exist",
    ];
    let mut told = uncovered(&mut fed, "nlp");
    told.sort();
    assert_eq!(told, of_nlp);
    let of_vision =
        ["native: 3.00 guaranteed to all teams, 2.00 exist", "all: 7.00 guaranteed to all teams, 6.00 exist"];
    assert_eq!(uncovered(&mut fed, "vision"), of_vision);
}

#[test]
fn guaranteed_cards_held_for_good_are_told() {
    let mut fed = teams(4, &["vision", "nlp"]);
    native_node(&mut fed);
    fed.quota("vision", cards(5, None));
    // Borrowed, but of managed cards.
    fed.ask_in("nlp", "n1", "gpu", 4, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    assert_eq!(unenforceable(&mut fed, "vision"), [""; 0]);
    hold_natively(&mut fed, "nlp");
    let held = "cards: of 5.00 guaranteed to all teams, 1.00 are held by claims that cannot be taken back";
    assert_eq!(unenforceable(&mut fed, "vision"), [held]);
    fed.end("nlp", "held");
    hold_natively(&mut fed, "vision");
    assert_eq!(unenforceable(&mut fed, "vision"), [""; 0], "its own use");
}
