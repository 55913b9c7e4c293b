//! Hostile selectors, for a few seconds: `TESSERA_FUZZ_SECONDS` says how many.

use tessera_fuzz::{selectors, time_boxed};

#[test]
fn selectors_end_well() {
    let lines: Vec<&[u8]> = include_str!("../../../crates/base/cel/tests/oracle/expressions.txt")
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with("##"))
        .map(str::as_bytes)
        .collect();
    let words = [
        "device",
        ".attributes",
        ".capacity",
        ".driver",
        "[\"gpu.tessera.dev\"]",
        ".model",
        "&&",
        "||",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".map(x, ",
        ".all(x, ",
        ".exists(x, ",
        ".filter(x, ",
        "cel.bind(x, ",
        "quantity(",
        "semver(",
        "\"",
        "'",
        "\\",
        "0x",
        "1u",
        "-9223372036854775808",
        "1e309",
        ".?",
        ".orValue(",
        ".matches(\"",
        "(a+)+",
        "in",
        "!",
        "-",
        "\u{e4}",
        "\u{10ffff}",
        "dyn(",
        "type(",
        "==",
        "<",
        "has(",
        "\"%d\".format([",
        "ip(",
        "url(",
    ];
    time_boxed::run("selectors", &lines, &words, selectors::run);
}
