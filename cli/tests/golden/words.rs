//! Faults of wording in everything the program is expected to print.

use std::fs;

use crate::program::folder;

/// Nouns counted in outputs.
const COUNTED: [&str; 10] = [
    "nodes",
    "devices",
    "cards",
    "pods",
    "claims",
    "pools",
    "partitions",
    "ResourceSlices",
    "errors",
    "warnings",
];

#[test]
fn outputs_have_no_debug_text_and_right_plurals() {
    let mut faults = Vec::new();
    for entry in fs::read_dir(folder().join("golden")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            // The first line is the command.
            for line in fs::read_to_string(&path).unwrap().lines().skip(1) {
                if is_debug(line) || has_wrong_plural(line) {
                    faults.push(format!("{}: {line}", path.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Rust's `Debug` of an enum or a struct: `Some(1)`, `Version { major: 1 }`.
fn is_debug(line: &str) -> bool {
    let is_variant = ["Some(", "Ok(", "Err(", "None,", "None)"].iter().any(|text| line.contains(text));
    let is_struct = line.match_indices(" { ").any(|(at, _)| {
        let name = line[..at].rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
        let field = line[at + 3..].split(' ').next().unwrap_or_default();
        name.starts_with(char::is_uppercase) && field.ends_with(':')
    });
    is_variant || is_struct
}

fn has_wrong_plural(line: &str) -> bool {
    let words: Vec<&str> = line.split(|letter: char| !letter.is_alphanumeric() && letter != '.').collect();
    words.windows(2).any(|pair| pair[0] == "1" && COUNTED.contains(&pair[1]))
}

#[test]
fn faults_of_wording_are_found() {
    assert!(is_debug("it is Some(3)") && is_debug("version Version { major: 1, minor: 2 }"));
    assert!(!is_debug("expecting {'[', '{', '('} { a: 1 }"));
    assert!(has_wrong_plural("fits on 1 of 1 nodes") && has_wrong_plural("1 cards"));
    assert!(!has_wrong_plural("11 cards of 2.1 nodes, 1 card"));
}
