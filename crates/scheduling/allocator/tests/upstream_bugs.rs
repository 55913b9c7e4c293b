//! Each bug of Kubernetes that changes results (docs/upstream-allocator.md): with it and without it. `tests/oracle.rs`
//! shows that Kubernetes has these bugs, by running the same cases in its own code.
#![allow(clippy::expect_used)]

use serde_json::{Value, json};
use tessera_allocator::features::UpstreamBugs;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::ours;

/// The answers to a kept case with one bug only, and with none. Each release answers as its bugs say.
fn answers(case: &str, bug: UpstreamBugs, has: fn(UpstreamBugs) -> bool) -> [Value; 2] {
    let path = format!("{}/tests/cases/{case}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a kept case");
    let request: Value = serde_json::from_str(&text).expect("a case is JSON");
    let answer_with = |version, bugs| {
        ours::answer_with(&request, &mut SelectorCache::new(), |allocator| {
            *allocator = allocator.answering_as(version);
            allocator.bugs = bugs;
        })
    };
    for version in KubernetesVersion::ALL {
        let expected =
            answer_with(version, if has(UpstreamBugs::of(version)) { bug } else { UpstreamBugs::NONE });
        let answer = ours::answer_as(version, &request, &mut SelectorCache::new(), None);
        assert_eq!(ours::comparable(&answer), ours::comparable(&expected), "{version}");
    }
    [bug, UpstreamBugs::NONE].map(|bugs| answer_with(KubernetesVersion::V1_36_3, bugs))
}

/// What of each answer was allocated; it is no error.
fn allocations(answers: [Value; 2]) -> [Value; 2] {
    answers.map(|answer| {
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["allocations"].clone()
    })
}

fn devices(allocations: &Value) -> Vec<&str> {
    let results = allocations[0]["devices"]["results"].as_array().expect("allocated");
    results.iter().filter_map(|result| result["device"].as_str()).collect()
}

#[test]
fn counters_ignore_driver() {
    let bug = UpstreamBugs { counters_ignore_driver: true, ..UpstreamBugs::NONE };
    let [with, without] =
        allocations(answers("counters-ignore-driver", bug, |bugs| bugs.counters_ignore_driver));
    assert_eq!(with, Value::Null, "the second driver's 40Gi are looked for in the first one's 10Gi");
    assert_eq!(devices(&without), ["d0", "d0"]);
}

#[test]
fn overcommitted_counter_blocks_pool() {
    let bug = UpstreamBugs { overcommitted_counter_blocks_pool: true, ..UpstreamBugs::NONE };
    let [with, without] = allocations(answers("overcommitted-counter-blocks-pool", bug, |bugs| {
        bugs.overcommitted_counter_blocks_pool
    }));
    assert_eq!(with, Value::Null);
    assert_eq!(devices(&without), ["d1"], "the other card is free");
}

#[test]
fn distinct_attribute_forgets() {
    let bug = UpstreamBugs { distinct_attribute_forgets: true, ..UpstreamBugs::NONE };
    let [with, without] =
        allocations(answers("distinct-attribute-forgets", bug, |bugs| bugs.distinct_attribute_forgets));
    assert_eq!(devices(&with), ["d0", "d1", "d2"], "a, b and a again");
    assert_eq!(without, Value::Null);
}

#[test]
fn claim_configuration_repeats() {
    let bug = UpstreamBugs { claim_configuration_repeats: true, ..UpstreamBugs::NONE };
    let [with, without] =
        allocations(answers("claim-configuration-repeats", bug, |bugs| bugs.claim_configuration_repeats));
    let from_claim = |allocations: &Value| {
        let config = allocations[0]["devices"]["config"].as_array().expect("configuration");
        config.iter().filter(|entry| entry["source"] == json!("FromClaim")).count()
    };
    assert_eq!((from_claim(&with), from_claim(&without)), (2, 1));
    assert_eq!(devices(&with), devices(&without));
}

#[test]
fn default_compared_as_written() {
    let bug = UpstreamBugs { default_compared_as_written: true, ..UpstreamBugs::NONE };
    let [with, without] =
        allocations(answers("default-compared-as-written", bug, |bugs| bugs.default_compared_as_written));
    assert_eq!(with, Value::Null, "1024Mi is taken for another amount than the default, 1Gi");
    assert_eq!(devices(&without), ["d0"]);
}

#[test]
fn shares_without_capacity_charge_again() {
    let bug = UpstreamBugs { shares_without_capacity_charge_again: true, ..UpstreamBugs::NONE };
    let has: fn(UpstreamBugs) -> bool = |bugs| bugs.shares_without_capacity_charge_again;
    let [with, without] = allocations(answers("shares-without-capacity-charge-again", bug, has));
    assert_eq!(with, Value::Null, "the second share would take the 40Gi again that the first one has");
    assert_eq!(devices(&without), ["d0"]);
}

#[test]
fn amounts_wrap() {
    let bug = UpstreamBugs { amounts_wrap: true, ..UpstreamBugs::NONE };
    let [with, without] = answers("amounts-wrap", bug, |bugs| bugs.amounts_wrap);
    let consumed = &with["allocations"][0]["devices"]["results"][0]["consumedCapacity"]["memory"];
    assert_eq!(consumed, "-9223372036854775808", "8Ei, rounded up from 128Mi in steps of 128Mi");
    let error = without["error"].as_str().expect("no amount");
    assert!(error.contains("request 9223372036854775807 is not a representable milli value"), "{error}");
}
