//! All cases of Kubernetes' own tables of allocator tests: `data/upstream-table-*.jsonl`, see `data/README.md`.

#![allow(clippy::expect_used)]

use std::collections::BTreeSet;

use serde_json::Value;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::ours;

/// A release with its table, how many of its cases our variant answers, and how many it does not.
const TABLES: [(KubernetesVersion, &str, usize, usize); 2] = [
    (KubernetesVersion::V1_36_3, include_str!("data/upstream-table-1.36.3.jsonl"), 208, 21),
    (KubernetesVersion::V1_37, include_str!("data/upstream-table-1.37.jsonl"), 235, 45),
];

/// Gates that are off by default, and that the allocator variant selected by default gates does not know.
const GATES_OF_OTHER_VARIANT: [&str; 4] =
    ["ListTypeAttributes", "DerivedAttributes", "CompatibilityGroups", "OptionalNodeOperations"];

/// Cases that are no comparison. Kubernetes writes the quantity of the first, 10^21, as `1`; the two others have attributes
/// that are lists, which no API server keeps while the gate DRAListTypeAttributes (alpha) is off.
const NOT_COMPARED: [&str; 3] = [
    "consumable-capacity-requests-are-not-modified",
    "list-attributes-disabled-distinct-constraint-with-lists",
    "list-attributes-disabled-match-constraint-with-lists",
];

fn cases(table: &str) -> Vec<Value> {
    table.lines().map(|line| serde_json::from_str(line).expect("a case is JSON")).collect()
}

/// In these, upstream's context ends before the search begins. Ours has no clock; what ends it is
/// `Allocator::effort_limit` (see `tests/properties.rs`). They have the request of `interrupt/off` and the same answer.
const INTERRUPTED: [&str; 3] = ["interrupt/cancel", "interrupt/deadline", "interrupt/timeout"];

fn needs_other_variant(case: &Value) -> bool {
    let features = case["features"].as_array().expect("a list");
    features.iter().any(|feature| GATES_OF_OTHER_VARIANT.iter().any(|gate| feature == gate))
}

#[test]
fn every_case_has_upstreams_answer() {
    for (version, table, expected_count, _) in TABLES {
        let (mut count, mut allocated, mut unfit, mut failed) = (0, 0, 0, 0);
        let mut disagreements = Vec::new();
        let mut selectors = SelectorCache::of(version);
        let all = cases(table);
        let uninterrupted = all.iter().find(|case| case["id"] == "interrupt/off").expect("it is in both");
        let is_compared = |case: &&Value| {
            let is_of_1_36 = version < KubernetesVersion::V1_37;
            !needs_other_variant(case) && (is_of_1_36 || NOT_COMPARED.iter().all(|name| case["id"] != *name))
        };
        for case in all.iter().filter(is_compared) {
            let is_interrupted = INTERRUPTED.iter().any(|name| case["id"] == *name);
            let expected = if is_interrupted { &uninterrupted["answer"] } else { &case["answer"] };
            let theirs = ours::comparable(expected);
            for patience in [None, Some(0), Some(u64::MAX)] {
                let ours = ours::comparable(&ours::answer_as(version, case, &mut selectors, patience));
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
        println!("{version}: {count} cases: {allocated} allocated, {unfit} do not fit, {failed} failed");
        assert!(
            disagreements.is_empty(),
            "{version}: {} disagree:\n{}",
            disagreements.len(),
            disagreements.join("\n")
        );
        assert_eq!(count, expected_count, "cases of {version} for our variant");
        assert_eq!(count, allocated + unfit + failed);
    }
}

/// Exactly these cases are out of scope, and each is refused with the name of what it needs.
#[test]
fn cases_of_another_variant_are_refused_by_their_gate() {
    for (version, table, _, expected_count) in TABLES {
        let all = cases(table);
        let others: Vec<&Value> = all.iter().filter(|case| needs_other_variant(case)).collect();
        assert_eq!(others.len(), expected_count, "cases of {version} for another variant");
        for case in others {
            let answer = ours::answer(case, &mut SelectorCache::new(), None);
            let error = answer["error"].as_str().unwrap_or_default();
            let names_gate = |gate: &&str| error == format!("unknown feature \"{gate}\"");
            assert!(GATES_OF_OTHER_VARIANT.iter().any(names_gate), "{}: {error}", case["id"]);
        }
        let names: BTreeSet<&str> = all.iter().filter_map(|case| case["id"].as_str()).collect();
        assert_eq!(names.len(), all.len(), "a name is there twice");
    }
}
