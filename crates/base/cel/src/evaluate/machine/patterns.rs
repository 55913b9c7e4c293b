//! Matches of regular expressions in a text.

use regex::Regex;

use super::{Machine, Stop};
use crate::evaluate::value::{Ref, Value};

pub(crate) fn find<'v>(
    machine: &mut Machine<'v>,
    pattern: &Regex,
    text: &Ref<'v, str>,
) -> Result<Value<'v>, Stop> {
    let found = pattern.find(text).map_or("", |found| found.as_str());
    machine.allocate(found.len())?;
    Ok(Value::shared_string(found))
}

pub(crate) fn find_all<'v>(
    machine: &mut Machine<'v>,
    pattern: &Regex,
    text: &Ref<'v, str>,
    limit: Option<&Value<'v>>,
) -> Result<Value<'v>, Stop> {
    let limit = match limit {
        None => usize::MAX,
        // A negative number means all.
        Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return Ok(Value::error("no such overload")),
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
