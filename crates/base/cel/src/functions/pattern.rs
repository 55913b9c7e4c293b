//! Functions with regular expressions computed during the evaluation.

use std::sync::Arc;

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::patterns::{find, find_all};
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::value::Value;
use crate::values::pattern::{Compiled, compile};

/// Largest number of patterns compiled by one evaluation. Upstream has no limit except the cost of using them.
const MOST_COMPILED: usize = 256;

/// Compiles a pattern other than a constant.
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
