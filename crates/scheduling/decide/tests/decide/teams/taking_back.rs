//! Borrowed devices are taken back for a team below its guarantee.

use super::judged_anew::ending;
use super::*;

/// A team that borrows four cards, and another with a guarantee of two, whose quota is old enough.
fn borrowing(min_runtime: u32) -> Fed {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    let mut nlp = cards(0, None);
    nlp["minRuntimeSeconds"] = json!(min_runtime);
    fed.quota("nlp", nlp);
    for number in 0..4 {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
        assert_eq!(fed.start().len(), 1);
        fed.pass(20);
    }
    fed
}

#[test]
fn what_was_lent_is_taken_back_youngest_first_and_no_more_than_is_guaranteed() {
    let mut fed = borrowing(0);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let victims = fed.takes();
    assert_eq!(victims.len(), 1);
    fed.end("nlp", &victims[0]);
    assert_eq!(fed.start(), ["v1"]);
    // The guarantee is two.
    fed.ask_in("vision", "v2", "gpu", 2, |_| {});
    fed.pass(20);
    assert_eq!(fed.takes(), [""; 0]);
    fed.end("vision", "v2");
    fed.ask_in("vision", "v3", "gpu", 1, |_| {});
    fed.pass(20);
    assert_eq!(fed.takes().len(), 1);
}

/// A guarantee on some cards takes back no others.
#[test]
fn cards_of_which_nothing_is_guaranteed_are_not_taken_back() {
    let mut fed = borrowing(0);
    fed.quota(
        "vision",
        json!({ "amounts": [{ "name": "hopper", "unit": "Cards", "guaranteed": 2,
        "cards": "device.attributes['gpu.tessera.dev'].architecture == 'Hopper'" }] }),
    );
    fed.decide();
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
}

/// What was lent comes back before the team's own pods of lower priority go; a namespace that comes meanwhile changes nothing.
#[test]
fn what_was_lent_goes_before_the_teams_own() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(4, None));
    fed.ask_in("vision", "v0", "gpu", 2, |_| {});
    fed.ask_in("nlp", "n0", "gpu", 2, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.namespace("new", "vision");
    fed.ask_in("vision", "v1", "gpu", 2, |pod| pod["spec"]["priority"] = json!(10));
    assert_eq!(fed.takes(), ["n0"]);
}

/// A second amount that only limits is no guarantee of nothing.
#[test]
fn an_amount_without_a_guarantee_does_not_keep_the_team_from_its_own() {
    let mut fed = borrowing(0);
    fed.quota("vision", json!({ "amounts": [
        { "name": "cards", "unit": "Cards", "guaranteed": 2 }, { "name": "memory", "unit": "Memory", "limit": "1Ti" }] }));
    fed.decide();
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.takes().len(), 1);
}

#[test]
fn nothing_is_taken_back_before_the_least_runtime() {
    let mut fed = borrowing(600);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
    let (_, why) = fed.why("vision", "v1");
    let told = "team vision has 0.00 of 2.00 guaranteed (cards); borrowed devices may be taken back from ";
    assert!(why.contains(told), "{why}");
    fed.pass(700);
    assert_eq!(fed.takes().len(), 1);
}

/// A mistake in a quota that was just written evicts nobody.
#[test]
fn nothing_is_taken_back_within_a_minute_of_a_changed_quota() {
    let mut fed = borrowing(0);
    fed.quota("vision", cards(3, None));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    fed.decide();
    fed.pass(50);
    assert_eq!(fed.takes(), [""; 0]);
    fed.pass(20);
    assert_eq!(fed.takes().len(), 1);
}

#[test]
fn priority_preempts_only_inside_the_team() {
    let mut fed = borrowing(0);
    fed.quota("vision", json!({}));
    let urgent = |pod: &mut Value| pod["spec"]["priority"] = json!(10);
    fed.ask_in("vision", "v1", "gpu", 1, urgent);
    fed.pass(100);
    assert_eq!(fed.takes(), [""; 0]);
    fed.end("vision", "v1");
    fed.ask_in("nlp", "n9", "gpu", 1, urgent);
    assert_eq!(fed.takes().len(), 1);
}

#[test]
fn who_does_not_borrow_waits_for_the_guarantee_and_is_never_asked() {
    let keeps = |pod: &mut Value| {
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    };
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(3, None));
    fed.quota("nlp", cards(1, None));
    fed.ask_in("nlp", "n1", "gpu", 2, keeps);
    assert_eq!(fed.start(), [""; 0]);
    assert_eq!(fed.why("nlp", "n1").1, "team nlp has 0.00 of 1.00 (cards)");
    fed.end("nlp", "n1");
    fed.ask_in("nlp", "n2", "gpu", 1, keeps);
    fed.ask_in("nlp", "n3", "gpu", 3, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 3, |_| {});
    assert_eq!(fed.takes(), ["n3"]);
}

/// What kube-scheduler allocated fills the guarantee first: it cannot be taken back.
#[test]
fn native_use_counts_within_the_guarantee() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(2, None));
    let mut native = allocated(claim("native", "gpu", 2), "a", &[card(0), card(1)]);
    native["metadata"]["namespace"] = json!("nlp");
    fed.apply_claim(native);
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    assert_eq!(fed.takes(), ["n1"]);
}

/// Nothing is guaranteed to a namespace in no quota.
#[test]
fn who_does_not_borrow_gets_nothing_in_no_quota() {
    let keeps = |pod: &mut Value| {
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    };
    let mut fed = teams(2, &["vision", "nlp"]);
    fed.ask_in("nlp", "n1", "gpu", 1, keeps);
    assert_eq!(fed.start(), ["n1"], "without any quota the label means nothing");
    fed.quota("vision", cards(1, None));
    fed.ask_in("nlp", "n2", "gpu", 1, keeps);
    assert_eq!(fed.start(), [""; 0]);
    assert_eq!(fed.why("nlp", "n2").0, "TeamLimit");
}

/// A team within its guarantee keeps its devices, whoever is below.
#[test]
fn what_is_guaranteed_is_not_taken_back() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(4, None));
    fed.ask_in("nlp", "n1", "gpu", 4, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
}

/// Between the plan and the eviction other pods of the team may get what is guaranteed to it.
#[test]
fn a_team_that_has_its_guarantee_meanwhile_takes_nothing_back() {
    let mut fed = borrowing(0);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    let mut other = allocated(claim("other", "gpu", 2), "b", &[card(0), card(1)]);
    other["metadata"]["namespace"] = json!("vision");
    fed.apply_claim(other);
    assert_eq!(evicted(&fed.decide()), [""; 0]);
}

/// The next leader goes on with what its predecessor nominated.
#[test]
fn the_next_leader_takes_back_what_was_nominated() {
    let mut fed = borrowing(0);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    fed.decider.follow();
    fed.decider.lead(fed.now, "two");
    fed.decide();
    fed.listed();
    let intents = fed.decide();
    let keys = intents.iter().find_map(|intent| match intent {
        Intent::Fence { claims, .. } => Some(claims.iter().map(|claim| claim.key.clone()).collect()),
        _ => None,
    });
    if let Some(claims) = keys {
        fed.decider.observe(fed.now, Observation::ClaimsWritten { claims, is_done: true }).unwrap();
    }
    let mut victims = evicted(&intents);
    victims.extend(evicted(&fed.decide()));
    assert_eq!(victims.len(), 1);
}

/// Of the cards of another pool nothing is guaranteed to the pod's team.
#[test]
fn free_cards_of_no_use_keep_nobody_from_what_is_guaranteed() {
    let mut fed = teams(2, &["vision", "nlp"]);
    fed.apply(node("b"));
    let pool = json!({ "pool": "other", "allocation": "Managed" });
    slices("b", 2, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed.quota(
        "vision",
        json!({ "amounts": [{ "name": "other", "unit": "Cards", "guaranteed": 2,
        "cards": "device.attributes['gpu.tessera.dev'].gpuPool == 'other'" }] }),
    );
    fed.decide();
    fed.pass(100);
    fed.decide();
    fed.listed();
    let on = |node: &'static str| {
        move |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node })
    };
    fed.ask_in("nlp", "n0", "gpu", 2, on("b"));
    assert_eq!(fed.start(), ["n0"]);
    fed.pass(100);
    fed.ask_in("vision", "v0", "gpu", 1, |pod| {
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    });
    assert_eq!(fed.takes(), ["n0"]);
}

/// What a team's own pods that are ending give back is counted until they are gone.
#[test]
fn a_full_guarantee_takes_back_for_pods_in_place_of_those_that_end() {
    let mut fed = leader(&[("a", 4), ("b", 2)]);
    for team in ["vision", "nlp"] {
        fed.namespace(team, team);
    }
    fed.quota("vision", cards(3, None));
    let on = |node: &'static str| {
        move |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node })
    };
    fed.ask_in("vision", "v0", "gpu", 2, on("a"));
    fed.ask_in("vision", "v1", "gpu", 1, on("a"));
    fed.ask_in("nlp", "n0", "gpu", 2, on("b"));
    assert_eq!(fed.start().len(), 3);
    fed.pass(100);
    ending(&mut fed, "vision", "v0");
    fed.ask_in("vision", "v2", "gpu", 2, on("b"));
    assert_eq!(fed.takes(), ["n0"]);
}
