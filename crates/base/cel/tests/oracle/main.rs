//! Compares every verdict, answer, error and cost with Kubernetes' own code of each release: `tests/oracle`, a Go
//! program on k8s.io/dynamic-resource-allocation.
//!
//! `TESSERA_ORACLE_SEED` and `TESSERA_ORACLE_COUNT` choose the generated cases.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

mod generator;
mod harness;
mod upstream;

use harness::{Request, VERSIONS, compare_all, compare_without_costs, devices};
use tessera_api::kubernetes::KubernetesVersion;

/// Expressions for every function and every rule, one per line.
const TABLE: &str = include_str!("expressions.txt");

/// The declarations that the crate checks against.
const DECLARATIONS: &str = include_str!("../../src/check/declarations.tsv");

/// The declarations of a release, without the column that names it.
fn declarations(version: KubernetesVersion) -> Vec<&'static str> {
    let release = if version < KubernetesVersion::V1_37 { "1.36" } else { "1.37" };
    let of_release = |line: &&str| line.split('\t').nth(5).is_none_or(|only| only == release);
    DECLARATIONS
        .lines()
        .filter(of_release)
        .map(|line| line.trim_end_matches(&format!("\t{release}")))
        .collect()
}

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
    for version in VERSIONS {
        let called = compare_all(version, &requests);
        let missing: Vec<&str> = declarations(version)
            .into_iter()
            .filter(|line| {
                let fields: Vec<&str> = line.split('\t').collect();
                // Nothing in a selector has one of these types: the variable `authorizer` is not declared.
                let unreachable = fields[3].contains("kubernetes.authorization.");
                // Declared, and an error for every argument.
                let fails = fields[1] == "int64_to_duration";
                !unreachable && !called.get(fields[1]).is_some_and(|answered| *answered || fails)
            })
            .collect();
        assert!(missing.is_empty(), "{version}: no case calls\n{}", missing.join("\n"));
        let upstreams = harness::declarations(version);
        for macro_key in upstreams.lines().filter_map(|line| line.strip_prefix("#macro\t")) {
            let name = macro_key.split(':').next().expect("a first part");
            let uses_it = lines().any(|line| line.contains(&format!("{name}(")));
            assert!(uses_it, "{version}: no case uses the macro {macro_key}");
        }
    }
}

#[test]
fn declarations_are_upstreams() {
    for version in VERSIONS {
        let upstreams = harness::declarations(version);
        let upstreams: Vec<&str> = upstreams.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(declarations(version), upstreams, "{version}");
    }
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
    for version in VERSIONS {
        compare_all(version, &requests);
    }
}

/// The device in loops over a variable of the same name; what is read of it costs nothing there in 1.37.
#[test]
fn names_behind_a_dot_agree_but_for_costs() {
    let expressions = [
        "[1].all(device, .device.driver == 'gpu.tessera.dev')",
        "['gpu.tessera.dev'].all(device, .device.driver == device)",
        "['gpu.tessera.dev'].all(x, [1].all(device, .device.attributes[x].type == 'gpu'))",
        "['gpu.tessera.dev'].all(x, [1].all(device, .device.attributes['gpu.tessera.dev'].type == 'gpu'))",
        "[{'driver': 'x'}].all(device, .device.driver == 'x')",
        "cel.bind(device, 1, .device.driver == 'gpu.tessera.dev')",
        "cel.bind(device, .device.driver, device == 'gpu.tessera.dev')",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, .device.attributes[x].type == 'gpu'))",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, has(.device.attributes[x].type)))",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, .device.attributes[?x].hasValue()))",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, .device.attributes['gpu.' + 'tessera.dev'].type == 'gpu'))",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, .device.attributes[string(x)].type == 'gpu'))",
        "cel.bind(x, 'gpu.tessera.dev', cel.bind(device, 1, .device.attributes[true ? x : 'a'].type == 'gpu'))",
        "[1].all(device, [2].all(device, .device.driver == 'gpu.tessera.dev' && device == 2))",
        "[1].exists(device, .device.driver == 'gpu.tessera.dev' ? true : false)",
        "[1].all(device, .device.attributes.exists(d, d == 'gpu.tessera.dev'))",
        "[1].all(device, .device.attributes.exists(d, .device.attributes[d].type == 'gpu'))",
        "['gpu.tessera.dev'].all(device, .device.attributes[.device.driver].type == 'gpu')",
        "['gpu.tessera.dev'].all(device, .device.attributes[device + ''].type == 'gpu')",
    ];
    let requests: Vec<Request> = expressions
        .into_iter()
        .flat_map(|expression| {
            devices().into_iter().map(|(device, list_type_attributes)| Request {
                expression: expression.to_owned(),
                device,
                list_type_attributes,
            })
        })
        .collect();
    for version in VERSIONS {
        compare_without_costs(version, &requests);
    }
}

#[test]
fn upstream_cases_agree() {
    for version in VERSIONS {
        compare_all(version, &upstream::requests());
    }
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
    for version in VERSIONS {
        compare_all(version, &requests);
    }
}
