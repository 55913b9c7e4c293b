//! All cases of Kubernetes' own table of allocator tests: `data/upstream-table.jsonl`, see `data/README.md`.

#![allow(clippy::expect_used)]

use std::collections::BTreeSet;

use serde_json::Value;
use tessera_allocator::selectors::SelectorCache;
use tessera_oracle::ours;

const TABLE: &str = include_str!("data/upstream-table.jsonl");

/// Cases of a gate that is off by default in 1.36, and that the allocator variant selected by default gates does not
/// know.
const FEATURE_OF_OTHER_VARIANT: &str = "ListTypeAttributes";

fn cases() -> Vec<Value> {
    TABLE.lines().map(|line| serde_json::from_str(line).expect("a case is JSON")).collect()
}

/// In these, upstream's context ends before the search begins. Ours has no clock; what ends it is
/// `Allocator::effort_limit` (see `tests/properties.rs`). They have the request of `interrupt/off` and the same answer.
const INTERRUPTED: [&str; 3] = ["interrupt/cancel", "interrupt/deadline", "interrupt/timeout"];

fn needs_other_variant(case: &Value) -> bool {
    case["features"].as_array().expect("a list").iter().any(|feature| feature == FEATURE_OF_OTHER_VARIANT)
}

#[test]
fn every_case_has_upstreams_answer() {
    let (mut count, mut allocated, mut unfit, mut failed) = (0, 0, 0, 0);
    let mut disagreements = Vec::new();
    let mut selectors = SelectorCache::new();
    let all = cases();
    let uninterrupted = all.iter().find(|case| case["id"] == "interrupt/off").expect("v0.36.3 has it");
    for case in all.iter().filter(|case| !needs_other_variant(case)) {
        let is_interrupted = INTERRUPTED.iter().any(|name| case["id"] == *name);
        let expected = if is_interrupted { &uninterrupted["answer"] } else { &case["answer"] };
        let theirs = ours::comparable(expected);
        for patience in [None, Some(0), Some(u64::MAX)] {
            let ours = ours::comparable(&ours::answer(case, &mut selectors, patience));
            if ours != theirs {
                disagreements.push(format!(
                    "{}: patience {patience:?}\n  ours   {ours}\n  theirs {theirs}",
                    case["id"]
                ));
            }
        }
        count += 1;
        match (theirs["error"].is_string(), theirs["allocations"].is_array()) {
            (true, _) => failed += 1,
            (_, true) => allocated += 1,
            _ => unfit += 1,
        }
    }
    println!("{count} cases: {allocated} allocated, {unfit} do not fit, {failed} failed");
    assert!(disagreements.is_empty(), "{} disagree:\n{}", disagreements.len(), disagreements.join("\n"));
    assert_eq!(
        (count, count - allocated - unfit - failed),
        (208, 0),
        "v0.36.3 has 208 cases for our variant"
    );
}

/// Exactly these cases are out of scope, and each is refused with the name of what it needs.
#[test]
fn cases_of_another_variant_are_refused_by_their_gate() {
    let all = cases();
    let others: Vec<&Value> = all.iter().filter(|case| needs_other_variant(case)).collect();
    assert_eq!(others.len(), 21, "v0.36.3 has 21 cases with list attributes");
    for case in others {
        let answer = ours::answer(case, &mut SelectorCache::new(), None);
        assert_eq!(answer["error"], "unknown feature \"ListTypeAttributes\"", "{}", case["id"]);
    }
    let names: BTreeSet<&str> = all.iter().filter_map(|case| case["id"].as_str()).collect();
    assert_eq!(names.len(), all.len(), "a name is there twice");
}
