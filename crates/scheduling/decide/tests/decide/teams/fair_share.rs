//! Devices taken back up to fair shares.

use serde_json::json;
use tessera_decide::{Decider, ReclaimTo};

use super::*;

/// A team that borrows all of four cards, and another of this weight without a guarantee.
fn borrowing(reclaim_to: ReclaimTo, weight: u32) -> Fed {
    let mut fed = teams(4, &["vision", "nlp"]);
    let decider = std::mem::replace(&mut fed.decider, Decider::new(DRIVER, share_ids()));
    fed.decider = decider.with_reclaim_to(reclaim_to);
    fed.quota("vision", json!({ "weight": weight, "minRuntimeSeconds": 0 }));
    fed.quota("nlp", cards(0, None));
    for number in 0..4 {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
        assert_eq!(fed.start().len(), 1);
        fed.pass(20);
    }
    fed.pass(100);
    fed
}

/// Gives pods of one card what they take back, until nothing more is; returns the number of victims.
fn taken(fed: &mut Fed, namespace: &str, other: &str) -> usize {
    let mut count = 0;
    for number in 0..4 {
        fed.ask_in(namespace, &format!("{namespace}-{number}"), "gpu", 1, |_| {});
        fed.pass(20);
        for victim in fed.takes() {
            fed.end(other, &victim);
            count += 1;
        }
        fed.start();
    }
    count
}

#[test]
fn a_team_takes_back_up_to_its_fair_share_where_the_chart_says_so() {
    for (reclaim_to, weight, expected) in
        [(ReclaimTo::Guarantee, 1, 0), (ReclaimTo::FairShare, 1, 2), (ReclaimTo::FairShare, 3, 3)]
    {
        let mut fed = borrowing(reclaim_to, weight);
        assert_eq!(taken(&mut fed, "vision", "nlp"), expected, "{reclaim_to:?}, weight {weight}");
        // Nothing goes back.
        fed.pass(1000);
        assert_eq!(taken(&mut fed, "nlp", "vision"), 0, "{reclaim_to:?}, weight {weight}");
    }
}

/// A pod of three cards would leave the other less than it gets.
#[test]
fn a_pod_too_large_for_the_fair_share_takes_nothing_back() {
    let mut fed = borrowing(ReclaimTo::FairShare, 1);
    fed.ask_in("vision", "v1", "gpu", 3, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
}

#[test]
fn what_is_guaranteed_to_others_and_who_does_not_borrow_is_as_before() {
    let mut fed = borrowing(ReclaimTo::FairShare, 1);
    fed.ask_in("vision", "v1", "gpu", 1, |pod| {
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    });
    assert_eq!(fed.takes(), [""; 0]);
    fed.end("vision", "v1");
    fed.quota("nlp", cards(4, None));
    fed.decide();
    fed.pass(100);
    fed.ask_in("vision", "v2", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
}

/// Children divide the share of their parent.
#[test]
fn a_child_takes_back_its_part_of_its_parents_share() {
    let mut fed = borrowing(ReclaimTo::FairShare, 1);
    let research = json!({ "metadata": { "name": "research" }, "spec": { "weight": 1 } });
    fed.apply(read::<GpuQuota>(research).into());
    fed.namespace("web", "web");
    for child in ["vision", "web"] {
        fed.quota(child, json!({ "parent": "research", "minRuntimeSeconds": 0 }));
    }
    fed.ask_in("web", "w1", "gpu", 1, |_| {});
    fed.decide();
    fed.pass(100);
    assert_eq!(taken(&mut fed, "vision", "nlp"), 2, "one for each child");
}

/// Once the first victim is gone, the other team has less than the first gets: no reason to have evicted in vain.
#[test]
fn a_plan_half_carried_out_goes_on() {
    let mut fed = leader(&[("a", 8), ("b", 8)]);
    for team in ["vision", "nlp"] {
        fed.namespace(team, team);
    }
    let decider = std::mem::replace(&mut fed.decider, Decider::new(DRIVER, share_ids()));
    fed.decider = decider.with_reclaim_to(ReclaimTo::FairShare);
    fed.quota("vision", json!({ "minRuntimeSeconds": 0 }));
    fed.quota("nlp", cards(0, None));
    let on = |node: &'static str| {
        move |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node })
    };
    fed.ask_in("nlp", "n0", "gpu", 4, on("a"));
    fed.ask_in("nlp", "n1", "gpu", 4, on("a"));
    fed.ask_in("nlp", "n2", "gpu", 1, on("b"));
    assert_eq!(fed.start().len(), 3);
    fed.pass(100);
    fed.ask_in("vision", "v0", "gpu", 8, on("a"));
    assert_eq!(fed.takes(), ["n0", "n1"]);
    fed.end("nlp", "n0");
    let intents = fed.decide();
    assert!(!intents.iter().any(|intent| matches!(intent, Intent::Nominate { .. })), "{intents:?}");
    fed.end("nlp", "n1");
    assert_eq!(fed.start(), ["v0"]);
}

/// One of three teams has all that it asks for, or all that its limit allows: the others divide the rest.
#[test]
fn what_a_small_demand_leaves_over_is_divided() {
    for (limit, waits, expected) in [(None, false, 3), (None, true, 2), (Some(1), true, 3)] {
        let mut fed = teams(7, &["vision", "nlp", "web"]);
        let decider = std::mem::replace(&mut fed.decider, Decider::new(DRIVER, share_ids()));
        fed.decider = decider.with_reclaim_to(ReclaimTo::FairShare);
        fed.quota("vision", json!({ "minRuntimeSeconds": 0 }));
        for (team, count, limit) in [("web", 1, limit), ("nlp", 6, None)] {
            fed.quota(team, cards(0, limit));
            for number in 0..count {
                fed.ask_in(team, &format!("{team}{number}"), "gpu", 1, |_| {});
                assert_eq!(fed.start().len(), 1);
                fed.pass(20);
            }
        }
        fed.pass(100);
        if waits {
            // Too large for its fair share.
            fed.ask_in("web", "w1", "gpu", 4, |_| {});
        }
        assert_eq!(taken(&mut fed, "vision", "nlp"), expected, "{limit:?}, {waits}");
    }
}
