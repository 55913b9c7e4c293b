//! Priority classes that no quota refuses.

use serde_json::json;
use tessera_decide::Decider;

use super::*;

/// Teams, and a controller to which the class `incident` is exempt.
fn exempting(cards: usize) -> Fed {
    let mut fed = teams(cards, &["vision", "nlp"]);
    let decider = std::mem::replace(&mut fed.decider, Decider::new(DRIVER, share_ids()));
    fed.decider = decider.with_exempt(vec!["incident".to_owned()]);
    fed
}

fn incident(pod: &mut Value) {
    pod["spec"]["priorityClassName"] = json!("incident");
    pod["spec"]["priority"] = json!(10);
}

fn urgent(pod: &mut Value) {
    pod["spec"]["priority"] = json!(10);
}

#[test]
fn an_exempt_pod_is_charged_and_not_refused() {
    let mut fed = exempting(4);
    let mut spec = cards(0, Some(1));
    spec["budget"] = json!({ "gpuHours": 1, "period": "Day" });
    spec["parent"] = json!("research");
    fed.quota("vision", spec);
    let parent = json!({ "metadata": { "name": "research" }, "spec": cards(0, Some(1)) });
    fed.apply(read::<GpuQuota>(parent).into());
    fed.ask_in("vision", "v1", "gpu", 2, incident);
    assert_eq!(fed.start(), ["v1"]);
    let used = |fed: &Fed, team: &str| fed.decider.quotas()[team].amounts[0].used;
    assert_eq!((used(&fed, "vision"), used(&fed, "research")), (2_000_000, 2_000_000));
    fed.decide();
    fed.pass(3600);
    // The budget is spent, too.
    fed.ask_in("vision", "v2", "gpu", 1, urgent);
    fed.ask_in("vision", "v3", "gpu", 1, incident);
    assert_eq!(fed.start(), ["v3"]);
    assert_eq!(fed.why("vision", "v2").0, "TeamBudget");
}

/// What it does not borrow, or is no longer guaranteed, is no reason to refuse it either.
#[test]
fn an_exempt_pod_that_does_not_borrow_is_not_refused() {
    let mut fed = exempting(2);
    fed.quota("nlp", cards(1, None));
    fed.ask_in("vision", "v1", "gpu", 1, |pod| {
        incident(pod);
        pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
    });
    assert_eq!(fed.start(), ["v1"]);
}

#[test]
fn an_exempt_pod_preempts_lower_priorities_of_any_team() {
    for (change, expected) in [(incident as fn(&mut Value), 1), (urgent, 0)] {
        let mut fed = exempting(2);
        fed.quota("vision", cards(0, Some(0)));
        fed.quota("nlp", cards(2, None));
        fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
        fed.ask_in("nlp", "n2", "gpu", 1, |pod| pod["spec"]["priority"] = json!(10));
        assert_eq!(fed.start().len(), 2);
        fed.pass(100);
        fed.ask_in("vision", "v1", "gpu", 1, change);
        let victims = fed.takes();
        assert_eq!(victims, ["n1"][..expected], "within its guarantee, and of lower priority");
        if expected == 1 {
            fed.end("nlp", "n1");
            assert_eq!(fed.start(), ["v1"]);
            // Back and forth without end otherwise.
            fed.ask_in("nlp", "n3", "gpu", 1, |_| {});
            fed.pass(1000);
            assert_eq!(fed.takes(), [""; 0]);
        }
    }
}

#[test]
fn exempt_pods_go_before_all_teams() {
    let mut fed = exempting(2);
    fed.quota("nlp", cards(2, None));
    fed.ask_in("nlp", "n1", "gpu", 2, |pod| pod["spec"]["priority"] = json!(20));
    fed.ask_in("vision", "v1", "gpu", 1, incident);
    assert_eq!(fed.start(), ["v1"]);
    // Without any quota the class means nothing.
    let mut fed = exempting(2);
    fed.ask_in("nlp", "n1", "gpu", 2, |pod| pod["spec"]["priority"] = json!(20));
    fed.ask_in("vision", "v1", "gpu", 1, incident);
    assert_eq!(fed.start(), ["n1"]);
}

#[test]
fn a_gang_is_exempt_if_all_of_its_pods_are() {
    for (number_of_others, count) in [(0, 2), (1, 0)] {
        let mut fed = exempting(2);
        fed.quota("vision", cards(0, Some(1)));
        for number in 0..2 {
            fed.ask_in("vision", &format!("g-{number}"), "gpu", 1, |pod| {
                if number >= number_of_others {
                    incident(pod);
                }
                pod["metadata"]["labels"] =
                    json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2" });
            });
        }
        assert_eq!(crate::gangs::steps(&fed.decide()).0.len(), count);
    }
}
