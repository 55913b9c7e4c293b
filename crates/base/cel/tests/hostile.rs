//! Hostile expressions: each ends, within bounded time, memory and stack.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::{CompileError, Device, Environment, EvaluationError, Selector};

/// Stack of the threads that run the expressions: half of the default of Rust's threads; an eighth in optimised builds,
/// which are the ones that run expressions of strangers.
const STACK: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 };

/// Time limit for each, generous for a busy machine: an unbounded one takes longer than that.
const LONGEST: Duration = Duration::from_secs(20);

fn run(expression: String) -> Result<Result<bool, EvaluationError>, CompileError> {
    let begin = Instant::now();
    let shown: String = expression.chars().take(60).collect();
    let result: Result<_, CompileError> = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let device = Device::new("gpu.tessera.dev");
            let run_as = |environment: Environment| {
                let selector = Selector::compile_with(&expression, environment)?;
                // The API server also estimates hostile expressions.
                let _ = Selector::compile_new(&expression, environment);
                let _ = selector.explain(&device);
                Ok(selector.matches(&device))
            };
            let _: Result<_, CompileError> = run_as(KubernetesVersion::V1_36_3.into());
            run_as(Environment::default())
        })
        .expect("a thread starts")
        .join()
        .expect("no panic");
    if std::env::var_os("TESSERA_SHOW").is_some() {
        eprintln!("{:?} {shown}", begin.elapsed());
    }
    assert!(begin.elapsed() < LONGEST, "{shown} took {:?}", begin.elapsed());
    if let Err(error) = &result {
        assert!(error.to_string().len() < 5_000, "{shown}: message of {} bytes", error.to_string().len());
    }
    if let Ok(Err(error)) = &result {
        assert!(error.to_string().len() < 5_000, "{shown}: message of {} bytes", error.to_string().len());
    }
    result
}

fn nested(open: &str, inside: &str, close: &str, count: usize) -> String {
    format!("{}{inside}{}", open.repeat(count), close.repeat(count))
}

#[test]
fn long_chains_and_deep_nesting_end() {
    for count in [240, 260, 10_000] {
        for expression in [
            format!("1{} == 1", "+1".repeat(count)),
            format!("true{}", "==true".repeat(count)),
            format!("true{}", "&&true".repeat(count)),
            format!("dyn(device){}", ".a".repeat(count)),
            format!("dyn(device){}", "[0]".repeat(count)),
            format!("'a'{} == 'a'", ".trim()".repeat(count)),
            format!("{}true", "true?true:".repeat(count)),
            format!("{}true", "!".repeat(count)),
            format!("{}1 == 1", "-".repeat(count)),
            nested("(", "true", ")", count),
            nested("[", "1", "]", count) + ".size() == 1",
            nested("{1:", "1", "}", count) + ".size() == 1",
            nested("dyn(", "true", ")", count) + " == true",
            nested("!(", "true", ")", count),
            nested("1+(", "1", ")", count) + " == 1",
            nested("[0][", "0", "]", count) + " == 0",
            nested("[1].map(x, ", "1", ")", count) + ".size() == 1",
            nested("cel.bind(x, [1], ", "x.size() == 1", ")", count),
            nested("optional.of(", "1", ")", count) + ".hasValue()",
            nested("has(", "a.b", ")", count),
            nested("true ? (", "true", ") : false", count),
            nested("(true || (", "true", "))", count),
            nested("type(", "1", ")", count) + " == type",
            nested("[?optional.of(", "1", ")]", count) + ".size() == 1",
            nested("{?1: optional.of(", "1", ")}", count) + ".size() == 1",
            nested("[1].all(x, ", "true", ")", count),
            nested("[1].exists(i, x, ", "true", ")", count),
            nested("[1].filter(x, ", "true", ")", count) + ".size() == 1",
            nested("{1: 1}.transformMap(k, v, ", "1", ")", count) + ".size() == 1",
            nested("[1].transformList(i, v, ", "1", ")", count) + ".size() == 1",
            nested("[2, 1].sortBy(x, ", "x", ")", count) + ".size() == 2",
            nested("optional.of(1).optMap(x, ", "x", ")", count) + ".hasValue()",
            nested("quantity(string(", "1", "))", count) + ".isInteger()",
            nested("'%s'.format([", "'a'", "])", count) + " == 'a'",
            nested("kubernetes.DRADevice{driver: ", "'a'", "}", count) + ".driver == 'a'",
            nested("device.attributes[", "'a'", "]", count) + " == 'a'",
            format!("dyn(device){}", "[?0]".repeat(count)),
            format!("dyn(device){}", ".?a".repeat(count)),
            format!("[1]{}.size() == 1", ".map(x, x)".repeat(count)),
            format!("device.driver{} == ''", ".replace('', device.driver)".repeat(count)),
            format!("'a'{} == ''", ".split('').join('bb')".repeat(count)),
            format!("1{}", " in [1]".repeat(count)),
            "a(".repeat(count),
            "a{".repeat(count),
            "[1].map(x,".repeat(count),
            "'''".repeat(count),
            r"b'\x".repeat(count),
            "//".repeat(count),
            "\u{0}".repeat(count),
            "\u{202e}".repeat(count),
            "(".repeat(count),
            "[".repeat(count),
            "{".repeat(count),
            "\"".repeat(count),
            "?".repeat(count),
            "a.".repeat(count),
            "\\".repeat(count),
            "0".repeat(count),
            "é".repeat(count),
        ] {
            let _ = run(expression);
        }
    }
}

#[test]
fn depth_is_limited_as_upstream_limits_it() {
    for (expression, deepest) in [
        (("(", "true", ")"), 249),
        (("1+(", "1", ")"), 124),
        (("true==(", "true", ")"), 124),
        (("1+1*(", "1", ")"), 83),
        (("!(", "true", ")"), 249),
    ] {
        let (open, inside, close) = expression;
        let suffix = if inside == "1" { " == 1" } else { "" };
        assert!(run(nested(open, inside, close, deepest) + suffix).is_ok(), "{open} {deepest}");
        let error = run(nested(open, inside, close, deepest + 1) + suffix).expect_err("one level too deep");
        assert!(error.to_string().contains("recursion"), "{error}");
    }
    assert!(run(format!("1{} == 1", "+1".repeat(249))).is_ok());
    assert!(run(format!("1{} == 1", "+1".repeat(250))).is_err());
}

#[test]
fn bombs_end_in_an_error() {
    // Doubling a list, a map's type, a string, a macro's target.
    let doubling = |first: &str, next: &str, last: &str, levels: usize| {
        let mut expression = String::new();
        for level in 0..levels {
            let value =
                if level == 0 { first.to_owned() } else { next.replace('@', &format!("x{}", level - 1)) };
            expression.push_str(&format!("cel.bind(x{level}, {value}, "));
        }
        expression + &last.replace('@', &format!("x{}", levels - 1)) + &")".repeat(levels)
    };
    let lists = |last: &str| doubling("[1]", "@ + @", last, 100);
    for expression in [
        lists("@.size() > 0"),
        lists("@.all(i, i == 1)"),
        lists("@ == @"),
        lists("2 in @"),
        lists("@.sum() > 0"),
        lists("@.reverse().size() > 0"),
        lists("@.distinct().size() > 0"),
        lists("'%s'.format([@]) == ''"),
        lists("@.map(i, string(i)).join() == ''"),
        lists("@.flatten(1).size() > 0"),
        lists("sets.contains(@, [2])"),
        lists("@.indexOf(2) > 0"),
        lists("@.sort().size() > 0"),
        lists("@.slice(0, 1000000000).size() > 0"),
        doubling("['']", "@ + @", "@.join('') == ''", 100),
        doubling("[]", "[@, @]", "@ == @", 100),
        doubling("[dyn([1])]", "[dyn(@), dyn(@)]", "@ == @", 40),
        doubling("{1: 1}", "{@: @}", "@.size() == 1", 40),
        doubling("'a'", "@ + @", "@.size() > 0", 100),
        doubling("'aaaaaaaaaa'", "@.replace('a', @)", "@.size() > 0", 100),
        doubling("'a'", "@ + @", "@.matches('(a*)*b')", 20),
        format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(100)),
        format!("optional.of(1){}.hasValue()", ".optFlatMap(x, optional.of(x))".repeat(12)),
        "lists.range(9223372036854775807).size() > 0".to_owned(),
        "lists.range(1000000).size() > 0".to_owned(),
        "lists.range(990000).map(x, x).size() > 0".to_owned(),
        "lists.range(30000).map(x, lists.range(30000)).size() > 0".to_owned(),
        "lists.range(1000).all(x, lists.range(1000).all(y, x != y || true))".to_owned(),
        "lists.range(400000).distinct().size() > 0".to_owned(),
        "lists.range(100000).map(x, 'a').distinct().size() > 0".to_owned(),
        doubling("['']", "@ + @", "@ == @", 100),
        doubling("['']", "[dyn(@), dyn(@)]", "sets.contains([@], [@])", 40),
        doubling("[null]", "[@, @]", "@ == @", 100),
        doubling("['a']", "[@, @]", "'%s'.format([@]) == ''", 100),
        "lists.range(20000).transformMap(i, x, x).size() == 20000".to_owned(),
        "lists.range(3000).all(x, 'a'.matches(string(x) + '(a{100}){10}'))".to_owned(),
        "lists.range(100000).exists(x, quantity('1e4000').isGreaterThan(quantity('1e4000')))".to_owned(),
        "quantity('1e2147483647').isGreaterThan(quantity('1'))".to_owned(),
        format!("quantity('{}').isGreaterThan(quantity('1'))", "9".repeat(9_000)),
        format!("'a'.matches('{}')", "(".repeat(9_000)),
        format!("'a'.matches('{}')", nested("(", "a", ")", 4_000)),
        format!("'a'.matches('{}')", nested("(", "a", ")*", 4_000)),
        "'a'.matches('((((a{100}){100}){100}){100}){100}')".to_owned(),
        format!("'a'.matches('{}')", "a{1000}".repeat(1_000)),
        format!("'{}'.matches('{}')", "a".repeat(1_000), "a?".repeat(500) + &"a".repeat(500)),
        format!("'a'.matches('{}')", "\\\\pL{1000}".repeat(100)),
        format!("[{}].size() == 1", "1,".repeat(5_000)),
        format!("{{{}}}.size() == 1", (0..2_000).map(|key| format!("{key}:1,")).collect::<String>()),
        format!("'{}'.format([1])", "%".repeat(9_001)),
        "'%.999999999f'.format([1.0]) == ''".to_owned(),
        "'%.99999999999999999999d'.format([1]) == ''".to_owned(),
        "'%.2147483647e'.format([1.0]) == ''".to_owned(),
        "'a{1000000000}'.matches('a{1000000000}')".to_owned(),
        "'a'.matches('(a{1000}){1000}')".to_owned(),
        "'a'.matches('(?i)(x+x+)+y')".to_owned(),
        "'a'.find('(.*)*(.*)*(.*)*(.*)*$') == ''".to_owned(),
        format!("'{}'.findAll('a|b|ab|(a*)').size() > 0", "ab".repeat(4_000)),
        format!("'{}'.replace('a', '{}', 1000000000) == ''", "a".repeat(4_000), "b".repeat(4_000)),
        format!("'{}'.split('', 1000000000).size() > 0", "a".repeat(9_000)),
        "'a'.substring(1000000000, 1000000000) == ''".to_owned(),
        "[1].slice(0, 9223372036854775807).size() > 0".to_owned(),
        "[1].flatten(9223372036854775807).size() > 0".to_owned(),
        "lists.range(50000).all(x, timestamp(x).getHours('Europe/Berlin') < 24)".to_owned(),
        "lists.range(50000).all(x, timestamp(0).getHours(string(x)) < 24)".to_owned(),
        "timestamp(0).getHours('99999999999999999999:0') == 0".to_owned(),
        "timestamp(253402300799).getHours('9223372036854775807:9223372036854775807') == 0".to_owned(),
        format!("timestamp(0).getHours('{}') == 0", "Europe/".repeat(1_000)),
        format!("semver('{}') == semver('1.0.0')", "1.".repeat(4_000)),
        format!("cidr('{}') == cidr('10.0.0.0/8')", ":".repeat(9_000)),
        format!("url('https://{}').getHost() == ''", "a.".repeat(4_000)),
        format!("duration('{}') == duration('1s')", "1h".repeat(4_000)),
        format!("int('{}') == 1", "9".repeat(9_000)),
        format!("double('{}') == 1.0", "9".repeat(9_000)),
        doubling("'a'", "strings.quote(@)", "@.size() > 0", 100),
        doubling("['a']", "@.map(x, x + x)", "@.size() > 0", 100),
        doubling("{'a': 1}", "@.transformMap(k, v, v + v)", "@.size() > 0", 100),
        doubling("[1]", "lists.range(@.size() * 2)", "@.size() > 0", 60),
        doubling("b'a'", "@ + @", "@.size() > 0", 100),
        doubling("optional.of([1])", "optional.of([@, @])", "@ == @", 60),
        format!("'{}'.format([dyn(1.0)]) == ''", "%.1000f"),
        format!("{} == 1", (0..300).map(|name| format!("f{name}(")).collect::<String>()),
        format!("true || {}", (0..3_000).map(|name| format!("n{name}")).collect::<Vec<_>>().join(" || ")),
    ] {
        let _ = run(expression);
    }
    // Traversing short texts costs nothing.
    let texts = run(doubling("['']", "@ + @", "@.indexOf('a') > 0", 100));
    assert_eq!(texts, Ok(Err(EvaluationError::MemoryLimit)));
    // A long list and the same one shifted by an element: they share nothing, and their comparison costs 1.
    let moved = "lists.range(1000).all(i, [@ + ['']] == [[''] + @])";
    assert_eq!(run(doubling("['']", "@ + @", moved, 20)), Ok(Err(EvaluationError::MemoryLimit)));
    let limit = run("lists.range(1000).all(x, lists.range(1000).all(y, true))".to_owned());
    assert_eq!(limit, Ok(Err(EvaluationError::CostLimit)));
}
