//! A round ends after a number of steps, so that pods of many new kinds do not make answers and events wait.

use serde_json::json;
use tessera_decide::Time;

use crate::gangs::queue::{allocated_to, ask_at};
use crate::leader::leader;
use crate::objects::*;

const PODS: usize = 60;

/// All pods come at once, each of a kind of its own, on a fleet where a kind costs 150 steps of 5,000.
#[test]
fn many_new_kinds_are_placed_over_several_rounds_in_their_order() {
    let names: Vec<String> = (0..150).map(|node| format!("n{node:03}")).collect();
    let nodes: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut fed = leader(&nodes);
    // Created last first: the queue's order, not the names', decides.
    for number in 0..PODS {
        ask_at(&mut fed, &format!("pod-{number:02}"), 1, 900 - number as u64, |pod| {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                json!(format!("{}m", 100 + number));
        });
    }
    let mut placed: Vec<String> = Vec::new();
    let mut rounds = 0;
    while fed.decider.wake().is_some_and(|wake| wake <= fed.now) {
        let intents = fed.decide();
        rounds += 1;
        assert!(rounds < PODS, "{placed:?}");
        placed.extend(allocated_to(&intents).into_iter().map(str::to_owned));
        fed.written(&intents);
    }
    let expected: Vec<String> = (0..PODS).rev().map(|number| format!("pod-{number:02}")).collect();
    assert_eq!(placed, expected);
    assert!(rounds > 1);
    fed.now += Time::from_secs(1);
    assert!(fed.decide().is_empty());
}

/// Kinds that look for victims take more steps: alone, judging 150 nodes for each of these would fit into a round.
#[test]
fn a_search_for_victims_counts_as_steps() {
    let names: Vec<String> = (0..150).map(|node| format!("n{node:03}")).collect();
    let nodes: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut fed = leader(&nodes);
    for name in &names {
        fed.apply_claim(allocated(claim(name, "gpu", 1), name, &[card(0)]));
        let mut low = pod(name);
        low["spec"]["nodeName"] = json!(name);
        low["spec"]["schedulingGates"] = json!([]);
        fed.apply_pod(low);
    }
    for number in 0..33 {
        ask_at(&mut fed, &format!("pod-{number:02}"), 1, 900 + number, |pod| {
            pod["spec"]["priority"] = json!(10);
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                json!(format!("{}m", 100 + number));
        });
    }
    fed.decide();
    assert!(fed.decider.wake().is_some_and(|wake| wake <= fed.now));
}
