//! What cannot be taken back is not lent.

use tessera_cluster::workloads::DisruptionBudget;

use super::*;

fn budget(fed: &mut Fed, spec: Value, status: Value) {
    let mut spec = spec;
    spec["selector"] = json!({ "matchLabels": { "app": "kept" } });
    let budget =
        json!({ "metadata": { "name": "keep", "namespace": "nlp" }, "spec": spec, "status": status });
    fed.apply(read::<DisruptionBudget>(budget).into());
}

fn kept(pod: &mut Value) {
    pod["metadata"]["labels"] = json!({ "app": "kept" });
}

#[test]
fn a_pod_that_no_budget_ever_lets_go_gets_its_teams_own_share_only() {
    let never = json!({ "disruptionsAllowed": 0, "expectedPods": 1, "desiredHealthy": 1 });
    let unknown = json!({ "disruptionsAllowed": 0 });
    let not_yet = json!({ "disruptionsAllowed": 0, "expectedPods": 3, "desiredHealthy": 2 });
    for (spec, status, borrows) in [
        (json!({ "minAvailable": 1 }), never, false),
        (json!({ "maxUnavailable": 0 }), unknown.clone(), false),
        (json!({ "maxUnavailable": "0%" }), unknown.clone(), false),
        (json!({ "minAvailable": "100%" }), unknown.clone(), false),
        // None of its pods is ready yet.
        (json!({ "maxUnavailable": 1 }), not_yet, true),
        (json!({ "minAvailable": 1 }), unknown, true),
    ] {
        let mut fed = teams(4, &["vision", "nlp"]);
        fed.quota("vision", cards(2, None));
        fed.quota("nlp", cards(1, None));
        budget(&mut fed, spec.clone(), status);
        fed.ask_in("nlp", "n1", "gpu", 1, kept);
        assert_eq!(fed.start(), ["n1"], "within the guarantee: {spec}");
        fed.ask_in("nlp", "n2", "gpu", 1, kept);
        assert_eq!(fed.start().len(), usize::from(borrows), "{spec}");
        if !borrows {
            let text = "team nlp has 1.00 of 1.00 (cards); it does not borrow: PodDisruptionBudget keep never allows its eviction";
            assert_eq!(fed.why("nlp", "n2").1, text);
        }
    }
}

#[test]
fn a_pod_borrows_once_its_budget_lets_it_go() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("nlp", cards(1, None));
    budget(&mut fed, json!({ "maxUnavailable": 0 }), json!({}));
    fed.ask_in("nlp", "n1", "gpu", 1, kept);
    assert_eq!(fed.start(), ["n1"]);
    fed.decide();
    fed.ask_in("nlp", "n2", "gpu", 1, kept);
    assert_eq!(fed.start(), [""; 0]);
    fed.decide();
    budget(&mut fed, json!({ "maxUnavailable": 1 }), json!({}));
    assert_eq!(fed.start(), ["n2"]);
    budget(&mut fed, json!({ "maxUnavailable": 0 }), json!({}));
    fed.ask_in("nlp", "n3", "gpu", 1, kept);
    assert_eq!(fed.start(), [""; 0]);
    fed.decide();
    let deleted = Observation::Deleted(Kind::DisruptionBudget, Key::new("nlp", "keep"));
    fed.decider.observe(fed.now, deleted).unwrap();
    assert_eq!(fed.start(), ["n3"]);
}
