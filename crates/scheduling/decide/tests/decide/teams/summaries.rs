//! What the status of a GpuQuota says.

use super::*;

#[test]
fn use_borrowed_and_lent_are_told() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, Some(4)));
    fed.quota("nlp", cards(1, None));
    fed.ask_in("nlp", "n1", "gpu", 3, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    fed.decide();
    let all = fed.decider.quotas();
    let of = |team: &str| {
        let amount = &all[team].amounts[0];
        (amount.guaranteed, amount.used, amount.borrowed, amount.lent, all[team].waiting)
    };
    assert_eq!(of("vision"), (2_000_000, 0, 0, 2_000_000, 1));
    assert_eq!(of("nlp"), (1_000_000, 3_000_000, 2_000_000, 0, 0));
    assert_eq!((all["nlp"].share, all["vision"].share, all["nlp"].namespaces), (1000, 0, 1));
}

#[test]
fn mistakes_are_told_and_limit_nobody() {
    let mut fed = teams(2, &["vision"]);
    fed.quota(
        "vision",
        json!({ "parent": "nobody", "amounts": [
        { "name": "odd", "unit": "Cards", "limit": 0, "cards": "device.attributes[" }] }),
    );
    let mut other = json!({ "metadata": { "name": "all" }, "spec": { "namespaceSelector": {} } });
    other["spec"]["priority"] = json!(-1);
    fed.apply(read::<GpuQuota>(other).into());
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    let all = fed.decider.quotas();
    let problems = all["vision"].problems.join("\n");
    for part in ["its parent nobody does not exist", "amounts[odd].cards: "] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
    assert_eq!(all["vision"].overlaps, ["selects 1 namespace that all selects, too: this one decides"]);
    assert_eq!(all["all"].overlaps, ["vision decides on 1 namespace that this one selects, too"]);
    assert_eq!(all["all"].problems, [""; 0], "a quota for the rest is no mistake");
}

#[test]
fn a_quota_that_cannot_be_read_says_so() {
    let mut fed = teams(1, &["vision"]);
    let (kind, key) = (Kind::GpuQuota, Key::cluster("vision"));
    let unreadable =
        Observation::Unreadable { kind, key, why: "weight: must be 1 or more".to_owned(), holds: None };
    fed.decider.observe(fed.now, unreadable).unwrap();
    fed.decide();
    assert_eq!(fed.decider.quotas()["vision"].problems, ["counts as absent: weight: must be 1 or more"]);
}

#[test]
fn the_view_has_the_teams_and_their_order() {
    let mut fed = teams(2, &["vision", "nlp"]);
    fed.quota("vision", cards(1, None));
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    fed.ask_in("nlp", "n2", "gpu", 1, |_| {});
    fed.ask_in("vision", "v1", "gpu", 1, |pod| {
        pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
    });
    fed.decide();
    let mut pass = tessera_decide::ViewPass::default();
    while fed.decider.view_next(&mut pass) {}
    let mut view = fed.decider.view(pass, fed.now).into_view();
    view.waiting.sort_by_key(|pod| pod.place);
    let order: Vec<&str> = view.waiting.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(order, ["v1", "n2"], "the younger pod's team is below its guarantee");
    let team = &view.teams[0];
    assert_eq!((view.teams.len(), team.name.as_str(), team.waiting), (1, "vision", 1));
    assert_eq!((&team.namespaces[..], team.amounts[0].lent.as_str()), (&["vision".to_owned()][..], "1.00"));
}
