//! Budgets of GPU hours: groups that wait for the next period, and teams that only borrow until then.

use super::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

fn budget(gpu_hours: u64, when_spent: &str) -> Value {
    json!({ "gpuHours": gpu_hours, "period": "Day", "whenSpent": when_spent })
}

fn with_deadline(seconds: u64) -> impl Fn(&mut Value) {
    move |pod| pod["spec"]["activeDeadlineSeconds"] = json!(seconds)
}

#[test]
fn a_spent_budget_waits_for_the_next_period_and_ends_nothing() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", json!({ "budget": budget(4, "Wait") }));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.decide();
    fed.pass(HOUR);
    fed.ask_in("vision", "v2", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v2"], "two of four hours are left");
    fed.decide();
    fed.pass(HOUR);
    for name in ["v3", "v4"] {
        fed.ask_in("vision", name, "gpu", if name == "v3" { 1 } else { 3 }, |_| {});
    }
    assert_eq!(fed.start(), [""; 0]);
    let text = "team vision has used its 4 GPU hours of 1970-01-01; more from 1970-01-02";
    for name in ["v3", "v4"] {
        assert_eq!(fed.why("vision", name), ("TeamBudget", text.to_owned()));
    }
    // Nobody waits behind them.
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["n1"]);
    fed.end("nlp", "n1");
    assert_eq!(fed.decider.wake(), Some(Time::from_secs(DAY)));
    fed.now = Time::from_secs(DAY);
    assert_eq!(fed.start(), ["v3"]);
    assert_eq!(fed.why("vision", "v4").0, "NoNode");
}

#[test]
fn the_budget_of_a_parent_binds_its_children() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("research", json!({ "budget": budget(1, "Wait") }));
    fed.quota("vision", json!({ "parent": "research", "budget": budget(100, "Wait") }));
    fed.quota("nlp", json!({ "parent": "research" }));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.decide();
    fed.pass(HOUR);
    fed.ask_in("nlp", "n1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), [""; 0]);
    assert!(fed.why("nlp", "n1").1.starts_with("team research has used its 1 GPU hour of"));
    fed.quota("research", json!({ "budget": budget(2, "Wait") }));
    assert_eq!(fed.start(), ["n1"]);
}

/// A pod that replaces one of a running gang is no new work.
#[test]
fn a_running_gang_keeps_its_size() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "budget": budget(1, "Wait") }));
    let ask = |fed: &mut Fed, name: &str| {
        fed.ask_in("vision", name, "gpu", 1, |pod| {
            pod["metadata"]["labels"] =
                json!({ "gpu.tessera.dev/group": "g", "gpu.tessera.dev/group-size": "2" });
            pod["spec"]["schedulingGates"] = json!([]);
        });
    };
    for name in ["g-0", "g-1"] {
        ask(&mut fed, name);
    }
    assert_eq!(fed.start().len(), 2);
    fed.decide();
    fed.pass(HOUR);
    fed.end("vision", "g-1");
    ask(&mut fed, "g-2");
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["g-2"]);
    assert_eq!(fed.why("vision", "v1").0, "TeamBudget");
}

#[test]
fn nothing_is_guaranteed_to_a_team_that_only_borrows() {
    let mut fed = teams(4, &["vision", "nlp"]);
    let spec = |hours: u64| {
        let mut spec = cards(2, None);
        spec["budget"] = budget(hours, "LentOnly");
        spec
    };
    fed.quota("vision", spec(2));
    fed.quota("nlp", cards(2, None));
    fed.ask_in("vision", "v1", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    fed.decide();
    fed.pass(HOUR);
    fed.ask_in("vision", "v2", "gpu", 2, |pod| {
        pod["metadata"]["creationTimestamp"] = json!("1970-01-01T01:15:00Z");
    });
    assert_eq!(fed.start(), ["v2"], "idle cards are lent");
    let amount = fed.decider.quotas()["vision"].amounts[0].clone();
    assert_eq!((amount.guaranteed, amount.borrowed), (0, 4_000_000));
    fed.ask_in("nlp", "n1", "gpu", 2, |_| {});
    fed.pass(HOUR);
    assert_eq!(fed.takes(), ["v2"]);
    fed.now = Time::from_secs(DAY);
    fed.decide();
    assert_eq!(fed.decider.quotas()["vision"].amounts[0].guaranteed, 2_000_000);
}

#[test]
fn a_child_that_only_borrows_takes_nothing_back_for_its_parent() {
    for (hours, expected) in [(1, 0), (100, 1)] {
        let mut fed = teams(6, &["vision", "web"]);
        let parent = json!({ "metadata": { "name": "research" }, "spec": cards(4, None) });
        fed.apply(read::<GpuQuota>(parent).into());
        let mut spec = cards(0, None);
        (spec["parent"], spec["budget"]) = (json!("research"), budget(hours, "LentOnly"));
        fed.quota("vision", spec);
        fed.ask_in("vision", "v0", "gpu", 1, |_| {});
        for number in 0..5 {
            fed.ask_in("web", &format!("w{number}"), "gpu", 1, |_| {});
        }
        assert_eq!(fed.start().len(), 6);
        fed.decide();
        fed.pass(HOUR);
        fed.decide();
        fed.ask_in("vision", "v1", "gpu", 1, |_| {});
        assert_eq!(fed.takes().len(), expected, "{hours} hours");
    }
}

#[test]
fn deadlines_of_running_pods_reserve_their_hours() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "budget": budget(6, "Wait") }));
    // In one round: two hours of four cards would be eight.
    for number in 0..4 {
        fed.ask_in("vision", &format!("v{number}"), "gpu", 1, with_deadline(2 * HOUR));
    }
    assert_eq!(fed.start().len(), 3);
    assert_eq!(
        fed.why("vision", "v3").1,
        "what is left of team vision's 6 GPU hours of 1970-01-01 is reserved until deadlines of its pods, or too little for this \
         one's; more from 1970-01-02"
    );
    fed.decide();
    fed.pass(HOUR);
    // One ends an hour early.
    fed.end("vision", "v0");
    assert_eq!(fed.start(), [""; 0], "two hours do not fit");
    assert_eq!(
        fed.why("vision", "v3").1,
        "what is left of team vision's 6 GPU hours of 1970-01-01 is reserved until deadlines of its pods, or too little for this \
         one's; more from 1970-01-02"
    );
    fed.ask_in("vision", "short", "gpu", 1, with_deadline(HOUR));
    assert_eq!(fed.start(), ["short"]);
    // The hours after midnight are of the next day.
    let mut fed = teams(4, &["vision"]);
    fed.now = Time::from_secs(DAY - HOUR);
    fed.quota("vision", json!({ "budget": budget(1, "Wait") }));
    fed.ask_in("vision", "v1", "gpu", 1, with_deadline(10 * HOUR));
    assert_eq!(fed.start(), ["v1"]);
}

#[test]
fn the_team_with_less_use_in_the_past_goes_first() {
    for (half_life, expected) in [(Some(168 * HOUR), "n"), (Some(0), "v"), (None, "n")] {
        let mut fed = teams(4, &["vision", "nlp"]);
        if let Some(half_life) = half_life {
            fed.decider =
                std::mem::replace(&mut fed.decider, tessera_decide::Decider::new(DRIVER, share_ids()))
                    .with_quota_half_life(Time::from_secs(half_life));
        }
        fed.quota("vision", json!({}));
        fed.quota("nlp", json!({}));
        fed.ask_in("vision", "v1", "gpu", 4, |_| {});
        assert_eq!(fed.start(), ["v1"]);
        fed.decide();
        fed.pass(6 * HOUR);
        fed.decide();
        fed.end("vision", "v1");
        fed.decide();
        // The older pods are those of the team that used the cards.
        for (team, name) in [("vision", "v"), ("nlp", "n")] {
            fed.ask_in(team, &format!("{name}2"), "gpu", 4, |pod| {
                if name == "n" {
                    pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
                }
            });
        }
        assert_eq!(fed.start(), [format!("{expected}2")], "half-life {half_life:?}");
    }
}

/// Hours are no device: who goes would go in vain.
#[test]
fn nobody_gives_back_for_hours_that_are_not_left() {
    for (deadline, expected) in [(100 * HOUR, 0), (HOUR, 1)] {
        let mut fed = teams(4, &["vision", "nlp"]);
        let mut spec = cards(2, None);
        spec["budget"] = budget(2, "Wait");
        fed.quota("vision", spec);
        fed.quota("nlp", json!({ "minRuntimeSeconds": 0 }));
        for number in 0..4 {
            fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
        }
        assert_eq!(fed.start().len(), 4);
        fed.pass(120);
        fed.ask_in("vision", "v1", "gpu", 1, with_deadline(deadline));
        let intents = fed.decide();
        let nominates = intents.iter().filter(|intent| matches!(intent, Intent::Nominate { .. })).count();
        assert_eq!(nominates, expected, "{intents:?}");
        assert_eq!(fed.why("vision", "v1").0 == "TeamBudget", expected == 0);
    }
}

/// Nothing is kept for a team whose hours are spent between the plan and the eviction.
#[test]
fn a_nomination_is_withdrawn_with_the_last_hour() {
    let mut fed = teams(4, &["vision", "nlp"]);
    let mut spec = cards(2, None);
    spec["budget"] = budget(1, "Wait");
    fed.quota("vision", spec);
    fed.quota("nlp", json!({ "minRuntimeSeconds": 0 }));
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"]);
    for number in 0..3 {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), 3);
    fed.pass(120);
    fed.ask_in("vision", "v2", "gpu", 1, |_| {});
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    fed.pass(HOUR);
    let intents = fed.decide();
    assert_eq!(evicted(&intents), [""; 0]);
    let withdrawn = |intent: &Intent| matches!(intent, Intent::Nominate { nomination: None, .. });
    assert!(intents.iter().any(withdrawn), "{intents:?}");
    assert_eq!(fed.why("vision", "v2").0, "TeamBudget");
}

/// Towards the end of a period fewer hours are enough, and nothing but time says so.
#[test]
fn a_pod_starts_once_its_hours_until_the_period_ends_are_left() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "budget": budget(6, "Wait") }));
    fed.now = Time::from_secs(HOUR);
    fed.ask_in("vision", "v1", "gpu", 1, with_deadline(10 * HOUR));
    assert_eq!(fed.start(), [""; 0]);
    assert_eq!(fed.decider.wake(), Some(fed.now + Time::from_secs(600)));
    fed.now = Time::from_secs(DAY - 6 * HOUR);
    assert_eq!(fed.start(), ["v1"]);
}

/// A pod with a long grace goes on using its devices.
#[test]
fn an_ending_pod_keeps_its_hours_until_its_end() {
    let mut fed = teams(4, &["vision"]);
    fed.quota("vision", json!({ "budget": budget(2, "Wait") }));
    fed.ask_in("vision", "v1", "gpu", 1, with_deadline(2 * HOUR));
    assert_eq!(fed.start(), ["v1"]);
    fed.pass(60);
    let pod = fed.decider.cluster().objects().pods[&Key::new("vision", "v1")].clone();
    let mut pod = serde_json::to_value(pod.as_ref()).unwrap();
    pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T02:00:00Z");
    fed.apply_pod(pod);
    fed.ask_in("vision", "v2", "gpu", 1, with_deadline(HOUR));
    assert_eq!(fed.start(), [""; 0]);
    assert_eq!(fed.why("vision", "v2").0, "TeamBudget");
    fed.end("vision", "v1");
    assert_eq!(fed.start(), ["v2"]);
}
