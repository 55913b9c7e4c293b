//! Regular expressions: Go's syntax (RE2), run by the `regex` crate, which is linear in the text as Go's is.

mod translate;

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::value::{Ref, Value};

/// Largest compiled pattern, in bytes.
const LARGEST: usize = 4 << 20;

/// Longest pattern. Upstream has no limit.
const LONGEST: usize = 100_000;

/// Most patterns that one evaluation may compile. Upstream has no limit but the cost of using them.
const MOST_COMPILED: usize = 256;

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

/// A compiled pattern, or why it is none.
type Compiled = Result<Arc<Regex>, Arc<str>>;

/// Patterns that were made while evaluating.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    compiled: Vec<(Box<str>, Compiled)>,
}

/// A pattern that is not a constant.
fn dynamic(machine: &mut Machine<'_>, pattern: &str) -> Result<Compiled, Stop> {
    if let Some((_, known)) = machine.patterns().compiled.iter().find(|(text, _)| **text == *pattern) {
        return Ok(known.clone());
    }
    if machine.patterns().compiled.len() >= MOST_COMPILED {
        return Err(Stop::Memory);
    }
    machine.allocate(pattern.len() * 64)?;
    let compiled = compile(pattern).map(Arc::new).map_err(Arc::from);
    machine.patterns().compiled.push((pattern.into(), compiled.clone()));
    Ok(compiled)
}

pub(crate) fn matches<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => match dynamic(machine, pattern)? {
            Ok(pattern) => Ok(Value::Bool(pattern.is_match(text))),
            Err(message) => fail(message),
        },
        [Value::String(_), _] | [Value::Duration(_) | Value::Timestamp(_), _] => mismatch(),
        _ => fail("no such overload: matches"),
    }
}

pub(crate) fn find<'v>(machine: &mut Machine<'v>, pattern: &Regex, text: &Ref<'v, str>) -> Answer<'v> {
    let found = pattern.find(text).map_or("", |found| found.as_str());
    machine.allocate(found.len())?;
    Ok(Value::shared_string(found))
}

pub(crate) fn find_all<'v>(
    machine: &mut Machine<'v>,
    pattern: &Regex,
    text: &Ref<'v, str>,
    limit: Option<&Value<'v>>,
) -> Answer<'v> {
    let limit = match limit {
        None => usize::MAX,
        // A negative number means all.
        Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return mismatch(),
    };
    let mut items = Vec::new();
    let mut former_end = None;
    for found in pattern.find_iter(text) {
        if items.len() >= limit {
            break;
        }
        // Go does not report an empty match directly after another match.
        if found.is_empty() && former_end == Some(found.start()) {
            continue;
        }
        former_end = Some(found.end());
        machine.allocate_elements(2)?;
        machine.allocate(found.len())?;
        items.push(Value::shared_string(found.as_str()));
    }
    Ok(Value::list(items))
}

pub(crate) fn find_dynamic<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(text), Value::String(pattern)] = arguments else { return mismatch() };
    match dynamic(machine, pattern)? {
        Ok(pattern) => find(machine, &pattern, text),
        Err(message) => fail(format!("Illegal regex: {message}")),
    }
}

pub(crate) fn find_all_dynamic<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = arguments else { return mismatch() };
    match dynamic(machine, pattern)? {
        Ok(pattern) => find_all(machine, &pattern, text, rest.first()),
        Err(message) => fail(format!("Illegal regex: {message}")),
    }
}
