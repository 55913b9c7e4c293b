//! Compares every verdict, answer, error and cost with Kubernetes' own code: `tests/oracle`, a Go program on
//! k8s.io/dynamic-resource-allocation v0.36.3.
//!
//! `TESSERA_ORACLE_SEED` and `TESSERA_ORACLE_COUNT` choose the generated cases.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "oracle/generator.rs"]
mod generator;
#[path = "oracle/harness.rs"]
mod harness;
#[path = "oracle/upstream.rs"]
mod upstream;

use harness::{Request, compare_all, devices};

/// Expressions for every function and every rule, one a line.
const TABLE: &str = include_str!("oracle/expressions.txt");

#[test]
fn table_agrees() {
    let mut requests = Vec::new();
    for line in TABLE.lines() {
        if line.trim().is_empty() || line.starts_with("##") {
            continue;
        }
        for (device, list_type_attributes) in devices() {
            requests.push(Request { expression: line.to_owned(), device, list_type_attributes });
        }
    }
    compare_all(&requests);
}

#[test]
fn upstream_cases_agree() {
    compare_all(&upstream::requests());
}

#[test]
fn generated_expressions_agree() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let seed = number("TESSERA_ORACLE_SEED", 1);
    let count = number("TESSERA_ORACLE_COUNT", 4_000);
    let mut generator = generator::Generator::new(seed);
    let devices = devices();
    let requests: Vec<Request> = (0..count)
        .map(|_| {
            let expression = generator.expression();
            let (device, list_type_attributes) =
                devices[generator.below(devices.len() as u64) as usize].clone();
            Request { expression, device, list_type_attributes }
        })
        .collect();
    compare_all(&requests);
}
