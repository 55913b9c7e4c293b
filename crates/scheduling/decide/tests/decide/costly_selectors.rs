//! Selectors as costly as the API server allows hold up only their own pods.

use serde_json::{Value, json};
use tessera_decide::{Intent, Time, WaitReason};

use crate::leader::{leader, ungated};
use crate::objects::*;

/// A claim with `selectors` selectors of about 800,000 units each, different from those of all other claims. All cards match.
fn costly(pod: &str, selectors: usize) -> Value {
    let mut claim = claim(pod, "gpu", 1);
    claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
    claim["metadata"]["resourceVersion"] = json!("5");
    let selector = |number: usize| {
        let all = |variable: &str, inner: String| format!("lists.range(42).all({variable}, {inner})");
        let loops = all("a", all("b", all("c", "a + b + c >= 0".to_owned())));
        json!({ "cel": { "expression": format!("'{pod}-{number}' != '' && {loops}") } })
    };
    let selectors: Vec<Value> = (0..selectors).map(selector).collect();
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!(selectors);
    claim
}

fn told(intents: &[Intent], name: &str) -> Option<String> {
    intents.iter().find_map(|intent| match intent {
        Intent::Tell { pod, message, .. } if pod.key.name == name => Some(message.clone()),
        _ => None,
    })
}

fn allocated_to(intents: &[Intent]) -> Vec<String> {
    let pod = |intent: &Intent| match intent {
        Intent::Allocate { pod, .. } => Some(pod.key.name.clone()),
        _ => None,
    };
    intents.iter().filter_map(pod).collect()
}

/// Rounds until all costly pods and a plain pod have a card, and the intents of the first round.
fn rounds(fed: &mut Fed, pods: usize, selectors: usize) -> (usize, Vec<Intent>) {
    for number in 0..pods {
        let name = format!("costly-{number:02}");
        fed.apply_claim(costly(&name, selectors));
        fed.apply_pod(pod(&name));
    }
    // Last in order of names.
    fed.versioned("plain", "gpu", 1, 5);
    fed.apply_pod(pod("plain"));
    let first = fed.decide();
    fed.written(&first);
    let mut done = allocated_to(&first);
    for round in 1.. {
        if done.len() == pods + 1 {
            return (round, first);
        }
        assert!(round < 500, "only {done:?}");
        let wake = fed.decider.wake().unwrap();
        assert!(wake <= fed.now + Time::from_millis(100), "nobody goes on with it");
        fed.now = wake.max(fed.now);
        let intents = fed.decide();
        fed.written(&intents);
        done.extend(allocated_to(&intents));
    }
    unreachable!()
}

#[test]
fn pods_with_costly_selectors_hold_up_nobody_and_get_there() {
    // 20 pods with 32 selectors each cost 500,000,000 units. A round has 6,000,000, and ends what it began.
    let mut fed = leader(&[("a", 7), ("b", 7), ("c", 7)]);
    let (rounds, first) = rounds(&mut fed, 20, 32);
    assert_eq!(allocated_to(&first), ["plain"]);
    let said = told(&first, "costly-00").unwrap();
    assert!(said.contains("of Kubernetes' 1000000 for a device: 'costly-00-"), "{said}");
    assert!((60..120).contains(&rounds), "{rounds} rounds");
}

#[test]
fn gangs_with_costly_selectors_get_there_too() {
    let mut fed = leader(&[("a", 2)]);
    for number in 0..2 {
        let name = format!("train-{number}");
        fed.apply_claim(costly(&name, 32));
        fed.apply_pod(crate::gangs::member("train", number, 2));
    }
    let mut rounds = 0;
    let gang = loop {
        let intents = fed.decide();
        let gang = allocated_to(&intents);
        if !gang.is_empty() {
            break gang;
        }
        rounds += 1;
        assert!(rounds < 100);
        fed.now = fed.decider.wake().unwrap().max(fed.now);
    };
    assert_eq!((gang.len(), rounds > 1), (2, true));
}

#[test]
fn pods_of_other_schedulers_have_a_budget_too() {
    let mut fed = leader(&[("a", 7), ("b", 7), ("c", 7)]);
    for number in 0..20 {
        let name = format!("costly-{number:02}");
        fed.apply_claim(costly(&name, 32));
        let mut pod = ungated(&name);
        pod["spec"]["schedulerName"] = json!("another");
        fed.apply_pod(pod);
    }
    let told = fed.decide().iter().filter(|intent| matches!(intent, Intent::Tell { .. })).count();
    let is_costly = |number: usize| {
        let reason = fed.decider.reason_of(&key(&format!("costly-{number:02}")));
        matches!(reason, Some(WaitReason::Costly(_)))
    };
    assert_eq!((told, (0..20).filter(|number| is_costly(*number)).count()), (20, 20));
}
