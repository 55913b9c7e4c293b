//! Regular expressions: Go's syntax (RE2), run by the `regex` crate, linear in the text like Go's.

mod translate;

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern, in bytes.
const LARGEST: usize = 4 << 20;

/// Longest pattern. Upstream has no limit.
const LONGEST: usize = 100_000;

/// Compiles a pattern of Go's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > LONGEST {
        return Err("error parsing regexp: expression too large".to_owned());
    }
    let translated =
        translate::translate(pattern).map_err(|reason| format!("error parsing regexp: {reason}"))?;
    RegexBuilder::new(&translated)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .build()
        .map_err(|_| "error parsing regexp: expression too large or not supported".to_owned())
}

/// A compiled pattern, or the reason why the pattern is invalid.
pub(crate) type Compiled = Result<Arc<Regex>, Arc<str>>;

/// Patterns compiled during an evaluation.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    pub compiled: Vec<(Box<str>, Compiled)>,
}
