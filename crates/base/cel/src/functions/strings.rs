//! Functions of strings; positions are in characters.

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::show::show;
use crate::evaluate::value::{Ref, Value};

fn bool_of<'v>(arguments: &[Value<'v>], test: impl FnOnce(&str, &str) -> bool) -> Answer<'v> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => mismatch(),
    }
}

pub(crate) fn contains<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    bool_of(arguments, |text, part| text.contains(part))
}

pub(crate) fn starts_with<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    bool_of(arguments, |text, part| text.starts_with(part))
}

pub(crate) fn ends_with<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    bool_of(arguments, |text, part| text.ends_with(part))
}

/// Byte position of the character at `index`; `None` beyond the end. The end itself is valid.
fn byte_at(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(index)
}

fn out_of_range<'v>(index: i64) -> Answer<'v> {
    fail(format!("index out of range: {index}"))
}

pub(crate) fn char_at<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(text), Value::Int(index)] = arguments else { return mismatch() };
    match byte_at(text, *index) {
        Some(byte) => {
            let found: String = text[byte..].chars().take(1).collect();
            Ok(Value::shared_string(found))
        }
        None => out_of_range(*index),
    }
}

fn characters(text: &str) -> i64 {
    text.chars().count() as i64
}

/// Where the empty text is found from an offset on.
fn of_empty<'v>(machine: &Machine<'v>, text: &str, offset: i64) -> Answer<'v> {
    if !machine.is_1_37() {
        return Ok(Value::Int(offset));
    }
    if offset < 0 { out_of_range(offset) } else { Ok(Value::Int(offset.min(characters(text)))) }
}

pub(crate) fn index_of<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (text, part, offset) = match arguments {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return mismatch(),
    };
    if part.is_empty() {
        return of_empty(machine, text, offset);
    }
    if offset < 0 {
        return out_of_range(offset);
    }
    let found = byte_at(text, offset).and_then(|from| {
        text[from..].find(&**part).map(|byte| offset + characters(&text[from..from + byte]))
    });
    Ok(Value::Int(found.unwrap_or(-1)))
}

pub(crate) fn last_index_of<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (text, part, offset) = match arguments {
        [Value::String(text), Value::String(part)] => {
            let length = characters(text);
            if part.is_empty() {
                return Ok(Value::Int(length));
            }
            if text.len() < part.len() {
                return Ok(Value::Int(-1));
            }
            (text, part, length - 1)
        }
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return mismatch(),
    };
    if part.is_empty() {
        return of_empty(machine, text, offset);
    }
    if offset < 0 {
        return out_of_range(offset);
    }
    if offset >= characters(text) {
        return Ok(Value::Int(-1));
    }
    // The match may begin at the offset and extend beyond.
    let end = byte_at(text, offset).map_or(text.len(), |begin| (begin + part.len()).min(text.len()));
    let mut end = end;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text[..end].rfind(&**part).map(|byte| characters(&text[..byte]));
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn mapped<'v>(
    machine: &mut Machine<'v>,
    arguments: &[Value<'v>],
    map: impl FnOnce(&str) -> String,
) -> Answer<'v> {
    let [Value::String(text)] = arguments else { return mismatch() };
    machine.allocate(text.len())?;
    Ok(Value::shared_string(map(text)))
}

pub(crate) fn lower_ascii<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    mapped(machine, arguments, str::to_ascii_lowercase)
}

pub(crate) fn upper_ascii<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    mapped(machine, arguments, str::to_ascii_uppercase)
}

pub(crate) fn trim<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    mapped(machine, arguments, |text| text.trim().to_owned())
}

pub(crate) fn quote<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    mapped(machine, arguments, |text| {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for character in text.chars() {
            match character {
                '\x07' => quoted.push_str("\\a"),
                '\x08' => quoted.push_str("\\b"),
                '\x0c' => quoted.push_str("\\f"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\x0b' => quoted.push_str("\\v"),
                '\\' => quoted.push_str("\\\\"),
                '"' => quoted.push_str("\\\""),
                other => quoted.push(other),
            }
        }
        quoted.push('"');
        quoted
    })
}

pub(crate) fn replace<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (text, old, new, limit) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, usize::MAX),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            // A negative number means all.
            (text, old, new, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return mismatch(),
    };
    let count =
        if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() }.min(limit);
    machine.allocate(text.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Value::shared_string(text.replacen(&**old, new, count)))
}

pub(crate) fn split<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (text, separator, limit) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return mismatch(),
    };
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<&str> = if separator.is_empty() {
        split_characters(text, limit)
    } else {
        text.splitn(limit, &**separator).collect()
    };
    machine.allocate(text.len())?;
    machine.allocate_elements(parts.len() as u64 * 2)?;
    Ok(Value::list(parts.into_iter().map(|part| part_of(text, part)).collect()))
}

/// A part of a text: borrowed if the text is.
fn part_of<'v>(text: &Ref<'v, str>, part: &str) -> Value<'v> {
    if let Ref::Borrowed(text) = text {
        let start = part.as_ptr() as usize - text.as_ptr() as usize;
        if let Some(part) = text.get(start..start + part.len()) {
            return Value::String(Ref::Borrowed(part));
        }
    }
    Value::shared_string(part)
}

fn split_characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(part);
        rest = after;
    }
    parts
}

pub(crate) fn substring<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (text, start, end) = match arguments {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return mismatch(),
    };
    if let Some(end) = end
        && start > end
    {
        return fail(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let Some(from) = byte_at(text, start) else { return out_of_range(start) };
    let to = match end {
        None => text.len(),
        Some(end) => match byte_at(text, end) {
            Some(byte) => byte,
            None => return out_of_range(end),
        },
    };
    Ok(part_of(text, &text[from..to]))
}

pub(crate) fn join<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let separator: &str = match arguments {
        [_] => "",
        [_, Value::String(separator)] => separator,
        _ => return mismatch(),
    };
    let list = machine.as_list(&arguments[0]);
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        let Value::String(text) = element else {
            return fail(format!("join: invalid input: {}", show(machine, element)));
        };
        let separator = if index == 0 { "" } else { separator };
        grow(machine, separator.len() + text.len())?;
        joined.push_str(separator);
        joined.push_str(text);
    }
    Ok(Value::shared_string(joined))
}

/// Minimum charge in bytes for a list's element: a list concatenated with itself is walked as if it were in memory.
pub(super) const ELEMENT_BYTES: usize = 64;

fn grow(machine: &mut Machine<'_>, bytes: usize) -> Result<(), Stop> {
    // A list concatenated with itself has more elements than fit in memory, even empty ones.
    machine.allocate(bytes.max(ELEMENT_BYTES))
}
