//! Compares every verdict, answer, error and cost with Kubernetes' own code: `tests/oracle`, a Go program on
//! k8s.io/dynamic-resource-allocation v0.36.3.
//!
//! `TESSERA_ORACLE_SEED` and `TESSERA_ORACLE_COUNT` choose the generated cases.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

mod generator;
mod harness;
mod upstream;

use harness::{Request, compare_all, devices};

/// Expressions for every function and every rule, one per line.
const TABLE: &str = include_str!("expressions.txt");

/// The declarations that the crate checks against.
const DECLARATIONS: &str = include_str!("../../src/check/declarations.tsv");

/// Compares the table, and checks that it is complete: every overload of the environment has a case that both sides
/// compile, evaluate and answer alike, and every macro is used.
#[test]
fn table_agrees_and_calls_every_function() {
    let mut requests = Vec::new();
    let lines = || TABLE.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("##"));
    for line in lines() {
        for (device, list_type_attributes) in devices() {
            requests.push(Request { expression: line.to_owned(), device, list_type_attributes });
        }
    }
    let called = compare_all(&requests);
    let missing: Vec<&str> = DECLARATIONS
        .lines()
        .filter(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            // Nothing in a selector has one of these types: the variable `authorizer` is not declared.
            let unreachable = fields[3].contains("kubernetes.authorization.");
            // Declared, and an error for every argument.
            let fails = fields[1] == "int64_to_duration";
            !unreachable && !called.get(fields[1]).is_some_and(|answered| *answered || fails)
        })
        .collect();
    assert!(missing.is_empty(), "no case calls\n{}", missing.join("\n"));
    for macro_key in harness::declarations().lines().filter_map(|line| line.strip_prefix("#macro\t")) {
        let name = macro_key.split(':').next().expect("a first part");
        assert!(lines().any(|line| line.contains(&format!("{name}("))), "no case uses the macro {macro_key}");
    }
}

#[test]
fn declarations_are_upstreams() {
    let upstreams = harness::declarations();
    let upstreams: Vec<&str> = upstreams.lines().filter(|line| !line.starts_with('#')).collect();
    for (number, (ours, theirs)) in DECLARATIONS.lines().zip(&upstreams).enumerate() {
        assert_eq!(ours, *theirs, "line {}", number + 1);
    }
    assert_eq!(DECLARATIONS.lines().count(), upstreams.len());
}

/// Lists with far more elements than an expression has characters, as far as the cost limit lets upstream compare them.
#[test]
fn long_comparisons_agree() {
    let doubled = |first: &str, next: &str, last: &str, levels: usize| {
        let mut expression = format!("cel.bind(x0, {first}, ");
        for level in 1..levels {
            let value = next.replace('@', &format!("x{}", level - 1));
            expression.push_str(&format!("cel.bind(x{level}, {value}, "));
        }
        expression + &last.replace('@', &format!("x{}", levels - 1)) + &")".repeat(levels)
    };
    // Upstream asks a concatenated list for its length at every element, which traverses all its parts.
    let expressions = [
        doubled("[1]", "@ + @", "@ == @", 10),
        doubled("[1]", "@ + @", "@ == @ + [1]", 10),
        doubled("[1]", "@ + @", "@ + [2] == [2] + @", 10),
        doubled("[1]", "@ + @", "@ + [1] == [1] + @", 10),
        doubled("[1]", "@ + @", "[@ + [1]] == [[1] + @]", 10),
        doubled("[dyn(1)]", "[dyn(@), dyn(@)]", "@ == @", 18),
        doubled("[dyn(1)]", "[dyn(@), dyn(@)]", "[dyn(@), dyn(1)] == [dyn(@), dyn(2)]", 16),
        doubled("[dyn(0.0 / 0.0)]", "[dyn(@), dyn(@)]", "@ == @", 16),
        doubled("[0.0 / 0.0]", "@ + @", "@ == @", 10),
        // An element without equality: an error in a concatenated list, equal in any other.
        doubled("[dyn(quantity('1'))]", "@ + @", "@ == [dyn(1)] + @.slice(1, 512)", 10),
        doubled("[dyn(quantity('1'))]", "@ + @", "[@] == [[dyn(1)] + @.slice(1, 512)]", 10),
        doubled("[dyn(quantity('1'))]", "@ + @", "@ + [dyn(1)] == @ + [dyn(2)]", 10),
        doubled("[dyn(quantity('1'))]", "@ + @", "@ == @ && [@, @] == [@, @]", 10),
        doubled("['a', 'b']", "@ + @", "sets.equivalent([@, @], [@]) && [@].indexOf(@) == 0 && @ in [@]", 10),
    ];
    let requests: Vec<Request> = expressions
        .into_iter()
        .map(|expression| {
            let (device, list_type_attributes) = devices().swap_remove(0);
            Request { expression, device, list_type_attributes }
        })
        .collect();
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
