//! Compares every allocation and every error with Kubernetes' own code: `tests/oracle`, a Go program on
//! k8s.io/dynamic-resource-allocation of the release.
//!
//! `TESSERA_ORACLE_SEED` and `TESSERA_ORACLE_COUNT` choose the generated cases.

#![allow(clippy::expect_used)]

use std::path::Path;

use serde_json::Value;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_oracle::{Generator, Oracle, ours};

fn parse(answer: &str) -> Value {
    serde_json::from_str(answer).expect("the oracle answers in JSON")
}

/// The oldest release and the newest.
const VERSIONS: [KubernetesVersion; 2] = [KubernetesVersion::V1_36_3, KubernetesVersion::V1_37];

#[test]
fn generated_requests_agree_with_1_36_3() {
    generated_requests_agree(KubernetesVersion::V1_36_3);
}

#[test]
fn generated_requests_agree_with_1_37() {
    generated_requests_agree(KubernetesVersion::V1_37);
}

fn generated_requests_agree(version: KubernetesVersion) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (seed, count) = (number("TESSERA_ORACLE_SEED", 1), number("TESSERA_ORACLE_COUNT", 3_000));
    let mut generator = Generator::new(seed);
    let mut oracle = Oracle::start(version);
    let mut selectors = SelectorCache::of(version);
    let (mut allocated, mut unfit, mut failed) = (0, 0, 0);
    let mut disagreements = Vec::new();
    for id in 0..count {
        let request = generator.request(id);
        let theirs = ours::comparable(&parse(&oracle.ask(&request.to_string())));
        // Half of the cases prune from the start.
        let patience = id.is_multiple_of(2).then_some(0);
        let ours = ours::comparable(&ours::answer_as(version, &request, &mut selectors, patience));
        match (&theirs["error"], &theirs["allocations"]) {
            (Value::String(_), _) => failed += 1,
            (_, Value::Null) => unfit += 1,
            _ => allocated += 1,
        }
        if ours != theirs {
            disagreements.push(format!("{request}\n  ours   {ours}\n  theirs {theirs}"));
        }
    }
    eprintln!(
        "{version}: {count} cases: {allocated} allocated, {unfit} do not fit, {failed} failed, {} disagreements",
        disagreements.len()
    );
    assert!(allocated > count / 10 && unfit > count / 20 && failed > count / 100, "the cases are one-sided");
    assert!(
        disagreements.is_empty(),
        "{} of {count} disagree, the first of them:\n{}",
        disagreements.len(),
        disagreements.iter().take(3).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Cases that once disagreed, or that are worth keeping.
#[test]
fn kept_cases_agree() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"));
    for version in VERSIONS {
        let mut oracle = Oracle::start(version);
        let mut selectors = SelectorCache::of(version);
        let mut count = 0;
        for entry in std::fs::read_dir(folder).expect("tests/cases is part of the repository") {
            let path = entry.expect("a readable folder").path();
            let text = std::fs::read_to_string(&path).expect("a readable case");
            let request: Value = serde_json::from_str(&text).expect("a case is JSON");
            let theirs = ours::comparable(&parse(&oracle.ask(&request.to_string())));
            let ours = ours::comparable(&ours::answer_as(version, &request, &mut selectors, None));
            assert_eq!(ours, theirs, "{version}: {}", path.display());
            count += 1;
        }
        assert!(count > 0, "no kept cases");
    }
}
