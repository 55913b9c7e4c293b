//! GPU hours: what is counted, and what the next leader goes on from.

use super::*;

const HOUR: u64 = 3600;

/// Seconds of a card in the current period.
fn seconds(fed: &mut Fed, team: &str) -> u64 {
    fed.decider.quotas()[team].hours.as_ref().expect("a leader knows the hours").card_seconds
}

#[test]
fn allocated_devices_count_until_they_are_given_back() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("research", json!({}));
    fed.quota("vision", json!({ "parent": "research" }));
    fed.quota("nlp", json!({ "parent": "research" }));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    fed.ask_in("vision", "v2", "half", 1, |_| {});
    assert_eq!(fed.start().len(), 2);
    fed.decide();
    fed.pass(HOUR);
    fed.decide();
    assert_eq!((seconds(&mut fed, "vision"), seconds(&mut fed, "nlp")), (HOUR * 5 / 2, 0));
    fed.end("vision", "v1");
    fed.pass(HOUR);
    fed.decide();
    // The hour until the end was noticed, at worst.
    assert_eq!(seconds(&mut fed, "vision"), HOUR * 5);
    fed.pass(HOUR);
    fed.decide();
    assert_eq!((seconds(&mut fed, "vision"), seconds(&mut fed, "research")), (HOUR * 11 / 2, HOUR * 11 / 2));
    assert_eq!(fed.decider.card_seconds().collect::<Vec<_>>(), [("vision", HOUR * 11 / 2)]);
}

/// The API server has not answered yet, and may refuse.
#[test]
fn what_is_planned_costs_no_hours() {
    let mut fed = teams(1, &["vision"]);
    fed.quota("vision", json!({}));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert!(intents.iter().any(|intent| matches!(intent, Intent::Allocate { .. })));
    fed.pass(HOUR);
    fed.decide();
    assert_eq!(seconds(&mut fed, "vision"), 0);
    assert_eq!(fed.decider.quotas()["vision"].amounts.len(), 0);
}

#[test]
fn the_next_leader_adds_what_ran_since_the_last_status() {
    let mut fed = teams(2, &["vision"]);
    fed.quota("vision", json!({}));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.decide();
    fed.pass(HOUR);
    fed.decide();
    assert_eq!(seconds(&mut fed, "vision"), HOUR);
    // Another led for two hours, and wrote the status after the first of them.
    fed.decider.follow();
    fed.pass(2 * HOUR);
    let status = json!({ "hours": { "cardSeconds": 100 * HOUR, "since": "1970-01-01T00:00:00Z",
        "asOf": k8s_openapi::jiff::Timestamp::from_second(fed.now.as_secs() as i64 - HOUR as i64).unwrap().to_string() },
        "recentUse": "3.500000" });
    let quota = json!({ "metadata": { "name": "vision" }, "status": status,
        "spec": { "namespaceSelector": { "matchLabels": { "team": "vision" } } } });
    fed.apply(read::<GpuQuota>(quota).into());
    fed.decider.lead(fed.now, "two");
    fed.decide();
    assert_eq!(seconds(&mut fed, "vision"), 101 * HOUR);
    let recent = fed.decider.quotas()["vision"].hours.as_ref().unwrap().recent_use;
    assert!((3.4..3.5).contains(&recent), "{recent}");
    // Without a status, from the allocation on.
    fed.decider.observe(fed.now, Observation::Deleted(Kind::GpuQuota, Key::cluster("vision"))).unwrap();
    fed.decide();
    fed.quota("vision", json!({}));
    fed.decide();
    assert_eq!(seconds(&mut fed, "vision"), 3 * HOUR);
}

#[test]
fn a_namespace_takes_no_hours_to_its_next_team() {
    let mut fed = teams(1, &["vision"]);
    fed.quota("vision", json!({ "budget": { "gpuHours": 10, "period": "Day" } }));
    fed.quota("nlp", json!({}));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.decide();
    fed.pass(HOUR);
    fed.namespace("vision", "nlp");
    fed.decide();
    fed.pass(HOUR);
    fed.decide();
    assert_eq!((seconds(&mut fed, "vision"), seconds(&mut fed, "nlp")), (HOUR, HOUR));
    // Past midnight, with nothing of the first in the new day.
    fed.pass(24 * HOUR);
    fed.decide();
    let hours = fed.decider.quotas()["vision"].hours.clone().unwrap();
    assert_eq!((hours.card_seconds, hours.periods[0].card_seconds), (0, HOUR));
    assert_eq!(hours.since, Time::from_secs(24 * HOUR));
}
