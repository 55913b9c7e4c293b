//! Each bug of Kubernetes that changes results (docs/upstream-allocator.md): with it and without it. `tests/oracle.rs`
//! shows that Kubernetes has these bugs, by running the same cases in its own code.
#![allow(clippy::expect_used)]

use serde_json::{Value, json};
use tessera_allocator::features::UpstreamBugs;
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::ours;

/// The answers to a kept case with one bug only, and with none.
fn answers(case: &str, bug: UpstreamBugs) -> [Value; 2] {
    let path = format!("{}/tests/cases/{case}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a kept case");
    let request: Value = serde_json::from_str(&text).expect("a case is JSON");
    let of_default = ours::comparable(&ours::answer(&request, &mut SelectorCache::new(), None));
    let [with, without] = [bug, UpstreamBugs::NONE].map(|bugs| {
        let answer =
            ours::answer_with(&request, &mut SelectorCache::new(), |allocator| allocator.bugs = bugs);
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer
    });
    assert_eq!(ours::comparable(&with), of_default, "by default Kubernetes' bugs are there");
    [with, without].map(|answer| answer["allocations"].clone())
}

fn devices(allocations: &Value) -> Vec<&str> {
    let results = allocations[0]["devices"]["results"].as_array().expect("allocated");
    results.iter().filter_map(|result| result["device"].as_str()).collect()
}

#[test]
fn counters_ignore_driver() {
    let bug = UpstreamBugs { counters_ignore_driver: true, ..UpstreamBugs::NONE };
    let [with, without] = answers("counters-ignore-driver", bug);
    assert_eq!(with, Value::Null, "the second driver's 40Gi are looked for in the first one's 10Gi");
    assert_eq!(devices(&without), ["d0", "d0"]);
}

#[test]
fn overcommitted_counter_blocks_pool() {
    let bug = UpstreamBugs { overcommitted_counter_blocks_pool: true, ..UpstreamBugs::NONE };
    let [with, without] = answers("overcommitted-counter-blocks-pool", bug);
    assert_eq!(with, Value::Null);
    assert_eq!(devices(&without), ["d1"], "the other card is free");
}

#[test]
fn distinct_attribute_forgets() {
    let bug = UpstreamBugs { distinct_attribute_forgets: true, ..UpstreamBugs::NONE };
    let [with, without] = answers("distinct-attribute-forgets", bug);
    assert_eq!(devices(&with), ["d0", "d1", "d2"], "a, b and a again");
    assert_eq!(without, Value::Null);
}

#[test]
fn claim_configuration_repeats() {
    let bug = UpstreamBugs { claim_configuration_repeats: true, ..UpstreamBugs::NONE };
    let [with, without] = answers("claim-configuration-repeats", bug);
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
    let [with, without] = answers("default-compared-as-written", bug);
    assert_eq!(with, Value::Null, "1024Mi is taken for another amount than the default, 1Gi");
    assert_eq!(devices(&without), ["d0"]);
}
