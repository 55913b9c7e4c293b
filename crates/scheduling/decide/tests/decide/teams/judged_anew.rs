//! Between a nomination and the eviction things change.

use tessera_api::managed::NOMINATION_ANNOTATION;
use tessera_decide::PodReference;

use super::*;

fn withdrawn(intents: &[Intent]) -> usize {
    intents.iter().filter(|intent| matches!(intent, Intent::Nominate { nomination: None, .. })).count()
}

/// The pod is ending, within its grace.
pub fn ending(fed: &mut Fed, namespace: &str, name: &str) {
    let found = fed.decider.cluster().objects().pods[&Key::new(namespace, name)].clone();
    let mut found = serde_json::to_value(found.as_ref()).unwrap();
    let end = k8s_openapi::jiff::Timestamp::from_second(fed.now.as_secs() as i64 + 30).unwrap();
    found["metadata"]["deletionTimestamp"] = json!(end.to_string());
    fed.apply_pod(found);
}

fn devices_of(fed: &Fed, claim: &Key) -> Vec<String> {
    let claim = fed.decider.cluster().objects().claims[claim].clone();
    let claim = serde_json::to_value(claim.as_ref()).unwrap();
    let results = claim["status"]["allocation"]["devices"]["results"].as_array().unwrap().clone();
    results.iter().map(|result| result["device"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_taker_that_has_its_guarantee_meanwhile_takes_nothing_back() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(0, None));
    for number in 0..4 {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |pod| {
            pod["metadata"]["creationTimestamp"] = json!(format!("1970-01-01T00:1{number}:00Z"));
        });
    }
    assert_eq!(fed.start().len(), 4);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    // The oldest are not those that would be evicted.
    let mut devices = Vec::new();
    for name in ["n0", "n1"] {
        devices.extend(devices_of(&fed, &Key::new("nlp", format!("{name}-gpus"))));
        fed.end("nlp", name);
    }
    let mut native = allocated(claim("native", "gpu", 2), "a", &devices);
    native["metadata"]["namespace"] = json!("vision");
    fed.apply_claim(native);
    let intents = fed.decide();
    assert_eq!((evicted(&intents), withdrawn(&intents)), (Vec::new(), 1), "{intents:?}");
}

/// What is evicted already is no reason to plan anew.
#[test]
fn a_victim_that_is_ending_is_waited_for() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(2, None));
    for number in 0..4 {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 4);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    let victims = fed.takes();
    assert_eq!(victims.len(), 2);
    for victim in &victims {
        ending(&mut fed, "nlp", victim);
        let intents = fed.decide();
        assert_eq!(withdrawn(&intents), 0, "{intents:?}");
    }
    for victim in &victims {
        fed.end("nlp", victim);
    }
    assert_eq!(fed.start(), ["v1"]);
}

/// Whoever may change a pod may write a nomination.
#[test]
fn a_nomination_evicts_no_pod_that_holds_nothing() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.ask_in("nlp", "n0", "gpu", 4, |_| {});
    assert_eq!(fed.start(), ["n0"]);
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "o", "controller": true }]);
    fed.apply_pod(json!({ "metadata": { "name": "agent", "namespace": "nlp", "uid": "uid-agent", "ownerReferences": owner },
        "spec": { "nodeName": "a", "containers": [] }, "status": { "phase": "Running" } }));
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    let found = fed.decider.cluster().objects().pods[&Key::new("vision", "v1")].clone();
    let mut found = serde_json::to_value(found.as_ref()).unwrap();
    let annotation = &mut found["metadata"]["annotations"][NOMINATION_ANNOTATION];
    let mut forged: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    forged["victims"].as_array_mut().unwrap().push(json!("nlp/agent/uid-agent"));
    *annotation = json!(forged.to_string());
    fed.apply_pod(found);
    let intents = fed.decide();
    assert_eq!((evicted(&intents), withdrawn(&intents)), (Vec::new(), 1), "{intents:?}");
}

/// Pods that are ending fill no guarantee: those that stay are within it.
#[test]
fn a_team_whose_pods_are_ending_keeps_its_guarantee() {
    for (of_nlp, expected) in [(3, &[][..]), (4, &["n3"])] {
        let mut fed = teams(2 + of_nlp, &["vision", "nlp"]);
        fed.quota("vision", cards(4, None));
        fed.quota("nlp", cards(2, None));
        fed.ask_in("vision", "v0", "gpu", 2, |_| {});
        for number in 0..of_nlp {
            fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |pod| {
                pod["metadata"]["creationTimestamp"] = json!(format!("1970-01-01T00:1{number}:00Z"));
            });
        }
        assert_eq!(fed.start().len(), of_nlp + 1);
        fed.pass(100);
        ending(&mut fed, "nlp", "n0");
        fed.ask_in("vision", "v1", "gpu", 2, |_| {});
        assert_eq!(fed.takes(), expected, "{of_nlp}");
    }
}

/// A policy against preemption concerns priorities.
#[test]
fn a_pod_that_never_preempts_takes_back_all_the_same() {
    let never = |pod: &mut Value| {
        pod["spec"]["preemptionPolicy"] = json!("Never");
        pod["spec"]["priority"] = json!(10);
    };
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    fed.ask_in("nlp", "n2", "gpu", 1, |_| {});
    assert_eq!(fed.start().len(), 3);
    fed.pass(100);
    fed.ask_in("vision", "v2", "gpu", 1, never);
    assert_eq!(fed.takes().len(), 1);
    fed.ask_in("vision", "v3", "gpu", 1, never);
    fed.pass(20);
    assert_eq!(fed.takes(), [""; 0], "beyond the guarantee it would have to preempt v1");
}

/// Teams that take back from each other come to rest: nobody's guarantee is borrowed.
#[test]
fn two_teams_do_not_take_the_same_cards_back_from_each_other() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(2, None));
    let mut number = 0;
    let mut ask = |fed: &mut Fed, team: &str, priority: i32| {
        number += 1;
        fed.ask_in(team, &format!("{team}-{number}"), "gpu", 1, |pod| {
            pod["spec"]["priority"] = json!(priority);
        });
    };
    (0..4).for_each(|_| ask(&mut fed, "nlp", 0));
    assert_eq!(fed.start().len(), 4);
    (0..4).for_each(|priority| ask(&mut fed, "vision", priority));
    let mut gone = 0;
    for round in 0..12 {
        fed.pass(100);
        for victim in fed.takes() {
            let (team, _) = victim.split_once('-').unwrap();
            assert_eq!(team, "nlp", "round {round}");
            gone += 1;
            fed.end(team, &victim);
            // Its replacement is of higher priority than anybody.
            ask(&mut fed, team, 100);
        }
        fed.start();
    }
    // Beyond its guarantee, a team's own priority decides.
    assert!(gone <= 4, "{gone}");
    let all = fed.decider.quotas();
    assert_eq!(["vision", "nlp"].map(|team| all[team].amounts[0].used), [2_000_000, 2_000_000]);
}

/// A pod of vision, one of two pods of nlp asked to go for it, each with a node of two cards; the names of the asked and of the other.
fn waiting() -> (Fed, String, &'static str) {
    let mut fed = leader(&[("a", 2), ("b", 2)]);
    ["vision", "nlp"].iter().for_each(|team| fed.namespace(team, team));
    fed.quota("vision", cards(2, None));
    fed.quota("nlp", cards(0, None));
    ["n1", "n2"].iter().for_each(|name| fed.ask_in("nlp", name, "gpu", 2, |_| {}));
    assert_eq!(fed.start().len(), 2);
    fed.pass(100);
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    let victims = fed.takes();
    let [victim] = victims.as_slice() else { panic!("{victims:?}") };
    fed.pass(1);
    fed.apply(labelled("a", json!({ "changed": "yes" })));
    assert_eq!(fed.decide(), [], "the victim was asked to go");
    let other = if victim == "n1" { "n2" } else { "n1" };
    (fed, victim.clone(), other)
}

/// No second look within ten seconds unless something around the pod changes.
#[test]
fn a_pod_that_waits_for_its_victim_learns_at_once_what_concerns_it() {
    let (mut fed, victim, _) = waiting();
    fed.end("nlp", &victim);
    assert_eq!(fed.start(), ["v1"]);

    let (mut fed, _, other) = waiting();
    fed.end("nlp", other);
    assert_eq!(fed.start(), ["v1"], "there is room on the other node");

    let (mut fed, ..) = waiting();
    fed.quota("vision", cards(1, None));
    assert_eq!(withdrawn(&fed.decide()), 1);

    let (mut fed, victim, _) = waiting();
    let pod = PodReference { key: Key::new("nlp", victim.as_str()), uid: format!("uid-{victim}") };
    fed.decider.observe(fed.now, Observation::Evicted { pod, is_done: false }).unwrap();
    assert_eq!(withdrawn(&fed.decide()), 1);
}

/// An eviction may have had no effect.
#[test]
fn a_victim_that_stays_is_asked_again() {
    let (mut fed, victim, _) = waiting();
    let mut asked = Vec::new();
    for _ in 0..60 {
        fed.pass(1);
        asked.extend(evicted(&fed.decide()));
    }
    assert_eq!(asked, [victim.as_str(); 2]);
}
