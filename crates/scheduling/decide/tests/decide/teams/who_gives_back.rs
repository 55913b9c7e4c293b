//! Whose devices are borrowed, and who has to give them back first.

use serde_json::json;

use super::*;
use crate::gangs::steps;

/// A pod of the team that starts on a card, or more.
fn starts(fed: &mut Fed, namespace: &str, name: &str, count: usize, change: impl Fn(&mut Value)) {
    fed.ask_in(namespace, name, "gpu", count, change);
    assert_eq!(fed.start(), [name]);
    fed.pass(20);
}

fn urgent(pod: &mut Value) {
    pod["spec"]["priority"] = json!(10);
}

fn keeps(pod: &mut Value) {
    pod["metadata"]["labels"] = json!({ "gpu.tessera.dev/borrow": "false" });
}

fn young(pod: &mut Value) {
    pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
}

/// Who has to go for a pod of the team with a guarantee of these cards.
fn victims(fed: &mut Fed, count: usize) -> Vec<String> {
    fed.pass(100);
    fed.ask_in("vision", "taker", "gpu", count, |_| {});
    fed.takes()
}

#[test]
fn the_team_furthest_above_its_share_is_asked_first() {
    let mut fed = teams(4, &["vision", "nlp", "web"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(0, None));
    fed.quota("web", cards(0, None));
    for name in ["w0", "w1", "w2"] {
        starts(&mut fed, "web", name, 1, |_| {});
    }
    starts(&mut fed, "nlp", "n0", 1, young);
    let victims = victims(&mut fed, 1);
    assert!(victims.len() == 1 && victims[0].starts_with('w'), "{victims:?}");
}

#[test]
fn inside_a_team_the_lowest_priority_goes_first() {
    let mut fed = teams(2, &["vision", "nlp"]);
    fed.quota("vision", cards(1, None));
    fed.quota("nlp", cards(0, None));
    starts(&mut fed, "nlp", "n0", 1, |_| {});
    let both = |pod: &mut Value| {
        urgent(pod);
        young(pod);
    };
    starts(&mut fed, "nlp", "n1", 1, both);
    assert_eq!(victims(&mut fed, 1), ["n0"]);
}

/// A change of a pod before it is submitted.
type Change = fn(&mut Value);

/// Within the guarantee are first those that do not borrow, then the higher priority, then the older.
#[test]
fn the_guarantee_is_for_those_that_do_not_borrow_then_by_priority_and_age() {
    let none = |_: &mut Value| {};
    let cases: [(Change, Change); 3] = [(keeps, urgent), (urgent, none), (none, young)];
    for (number, (stays, goes)) in cases.into_iter().enumerate() {
        let mut fed = teams(2, &["vision", "nlp"]);
        fed.quota("vision", cards(1, None));
        fed.quota("nlp", cards(1, None));
        // By name alone the other would stay.
        starts(&mut fed, "nlp", "z-stays", 1, stays);
        starts(&mut fed, "nlp", "a-goes", 1, goes);
        assert_eq!(victims(&mut fed, 1), ["a-goes"], "case {number}");
    }
}

#[test]
fn beyond_one_of_two_guarantees_is_borrowed() {
    let mut fed = teams(2, &["vision", "nlp"]);
    fed.quota("vision", cards(1, None));
    fed.quota(
        "nlp",
        json!({ "minRuntimeSeconds": 0, "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": 2 },
            { "name": "memory", "unit": "Memory", "guaranteed": "80Gi" }] }),
    );
    starts(&mut fed, "nlp", "n0", 1, |_| {});
    starts(&mut fed, "nlp", "n1", 1, young);
    assert_eq!(victims(&mut fed, 1), ["n1"]);
}

/// What is borrowed would be too little, and the rest is guaranteed.
#[test]
fn a_guaranteed_pod_is_not_taken_beside_a_borrower() {
    let mut fed = teams(3, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(2, None));
    starts(&mut fed, "nlp", "n0", 2, |_| {});
    starts(&mut fed, "nlp", "n1", 1, young);
    assert_eq!(victims(&mut fed, 2), [""; 0]);
}

/// A pod runs from its start or, as long as the kubelet has not taken it in, from its binding; unbound it is not asked.
#[test]
fn the_least_runtime_begins_with_the_binding() {
    for (status, count) in [("True", 1), ("False", 0)] {
        let mut fed = teams(1, &["vision", "nlp"]);
        fed.quota("vision", cards(1, None));
        fed.quota("nlp", cards(0, None));
        starts(&mut fed, "nlp", "n0", 1, |_| {});
        let pod = fed.decider.cluster().objects().pods[&Key::new("nlp", "n0")].clone();
        let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
        pod["status"]["startTime"] = Value::Null;
        pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": status,
            "lastTransitionTime": "1970-01-01T00:16:40Z" }]);
        fed.apply_pod(pod);
        assert_eq!(victims(&mut fed, 1).len(), count, "{status}");
    }
}

/// The quota of the pod in the way is another than when the plan was made.
#[test]
fn who_is_within_its_guarantee_meanwhile_stays() {
    let mut fed = teams(1, &["vision", "nlp"]);
    fed.quota("vision", cards(1, None));
    fed.quota("nlp", cards(0, None));
    starts(&mut fed, "nlp", "n0", 1, |_| {});
    fed.pass(100);
    fed.ask_in("vision", "taker", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    fed.quota("nlp", cards(1, None));
    assert_eq!(evicted(&fed.decide()), [""; 0]);
}

/// A weight takes nothing from anybody, a namespace with devices that changes its team may.
#[test]
fn the_grace_begins_anew_with_namespaces_and_not_with_weights() {
    let lent = || {
        let mut fed = teams(1, &["vision", "nlp"]);
        fed.quota("vision", cards(1, None));
        starts(&mut fed, "nlp", "n0", 1, |_| {});
        fed.pass(100);
        fed.decide();
        fed
    };
    let mut fed = lent();
    let mut heavier = cards(1, None);
    heavier["weight"] = json!(2);
    fed.quota("vision", heavier);
    fed.ask_in("vision", "taker", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), ["n0"]);
    let mut fed = lent();
    fed.quota("web", json!({ "minRuntimeSeconds": 0 }));
    fed.decide();
    fed.pass(100);
    fed.namespace("nlp", "web");
    fed.ask_in("vision", "taker", "gpu", 1, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
    fed.pass(100);
    assert_eq!(fed.takes(), ["n0"]);
}

/// Inside the team, too, it gets no more than the guarantee.
#[test]
fn who_does_not_borrow_preempts_within_the_guarantee_alone() {
    let mut fed = teams(2, &["vision"]);
    fed.quota("vision", cards(1, None));
    starts(&mut fed, "vision", "v0", 2, |_| {});
    let both = |pod: &mut Value| {
        urgent(pod);
        keeps(pod);
    };
    fed.ask_in("vision", "v1", "gpu", 2, both);
    assert_eq!(fed.takes(), [""; 0]);
}

/// One pod that does not borrow is enough for the gang.
#[test]
fn a_gang_with_a_pod_that_does_not_borrow_borrows_nothing() {
    for (guaranteed, count) in [(1, 0), (2, 2)] {
        let mut fed = teams(2, &["vision"]);
        fed.quota("vision", cards(guaranteed, None));
        for number in 0..2 {
            fed.ask_in("vision", &format!("g-{number}"), "gpu", 1, |pod| {
                keeps(pod);
                let labels = &mut pod["metadata"]["labels"];
                labels["gpu.tessera.dev/group"] = json!("g");
                labels["gpu.tessera.dev/group-size"] = json!("2");
                if number == 0 {
                    labels["gpu.tessera.dev/borrow"] = json!("true");
                }
            });
        }
        assert_eq!(steps(&fed.decide()).0.len(), count);
    }
}
