//! `"…%s…".format([…])`, as in the strings library up to version 3.

use super::{Answer, convert, fail, mismatch};
use crate::evaluate::list::List;
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::qualify;
use crate::evaluate::show;
use crate::evaluate::value::Value;
use crate::values::format_clause::{Clause, clause};

/// Largest number of written decimals.
const MOST_DECIMALS: usize = 1_000;

pub(crate) fn format<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(pattern), list] = arguments else { return mismatch() };
    let values = machine.as_list(list);
    match render(machine, pattern, &values)? {
        Ok(text) => Ok(Value::shared_string(text)),
        Err(message) => fail(message),
    }
}

fn render<'v>(
    machine: &mut Machine<'v>,
    pattern: &str,
    values: &List<'v>,
) -> Result<Result<String, String>, Stop> {
    let mut text = String::new();
    let mut rest = pattern;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        machine.allocate(at)?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let Some(value) = values.get(index) else { return Ok(Err(format!("index {index} out of range"))) };
        if rest.is_empty() {
            return Ok(Err("unexpected end of string".to_owned()));
        }
        let (clause, length) = match clause(rest) {
            Ok(found) => found,
            Err(message) => return Ok(Err(message)),
        };
        match write(machine, clause, value)? {
            Ok(part) => text.push_str(&part),
            Err(message) => return Ok(Err(format!("error during formatting: {message}"))),
        }
        rest = &rest[length..];
        index += 1;
    }
    machine.allocate(rest.len())?;
    text.push_str(rest);
    Ok(Ok(text))
}

fn write<'v>(
    machine: &mut Machine<'v>,
    clause: Clause,
    value: &Value<'v>,
) -> Result<Result<String, String>, Stop> {
    let name = value.type_name();
    let written = match clause {
        Clause::String => string(machine, value)?,
        Clause::Decimal => match value {
            Value::Int(value) => Ok(value.to_string()),
            Value::Uint(value) => Ok(value.to_string()),
            _ => Err(format!("decimal clause can only be used on integers, was given {name}")),
        },
        Clause::Fixed(precision) => double_of(value)
            .map(|number| fixed(number, precision.unwrap_or(6)))
            .ok_or_else(|| format!("fixed-point clause can only be used on doubles, was given {name}")),
        Clause::Scientific(precision) => double_of(value)
            .map(|number| {
                // Upstream mistakes the precision for a width.
                format!("{:>width$}", scientific(number), width = precision.unwrap_or(6).min(MOST_DECIMALS))
            })
            .ok_or_else(|| format!("scientific clause can only be used on doubles, was given {name}")),
        Clause::Binary => match value {
            Value::Int(value) => Ok(signed(*value, |magnitude| format!("{magnitude:b}"))),
            Value::Uint(value) => Ok(format!("{value:b}")),
            Value::Bool(value) => Ok(u8::from(*value).to_string()),
            _ => Err(format!("only integers and bools can be formatted as binary, was given {name}")),
        },
        Clause::Octal => match value {
            Value::Int(value) => Ok(signed(*value, |magnitude| format!("{magnitude:o}"))),
            Value::Uint(value) => Ok(format!("{value:o}")),
            _ => Err(format!("octal clause can only be used on integers, was given {name}")),
        },
        Clause::Hexadecimal { upper } => {
            let lower = match value {
                Value::Int(value) => Ok(signed(*value, |magnitude| format!("{magnitude:x}"))),
                Value::Uint(value) => Ok(format!("{value:x}")),
                Value::String(text) => Ok(hexadecimal(text.as_bytes())),
                Value::Bytes(bytes) => Ok(hexadecimal(bytes)),
                _ => Err(format!(
                    "only integers, byte buffers, and strings can be formatted as hex, was given {name}"
                )),
            };
            lower.map(|text| if upper { text.to_ascii_uppercase() } else { text })
        }
    };
    if let Ok(text) = &written {
        machine.allocate(text.len())?;
    }
    Ok(written)
}

fn signed(value: i64, write: impl FnOnce(u64) -> String) -> String {
    let text = write(value.unsigned_abs());
    if value < 0 { format!("-{text}") } else { text }
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn double_of(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        Some("NaN".to_owned())
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞".to_owned() } else { "-∞".to_owned() })
    } else {
        None
    }
}

/// With groups of three digits, as in the locale en_US.
fn fixed(number: f64, decimals: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let text = format!("{:.*}", decimals.min(MOST_DECIMALS), number);
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut grouped = String::with_capacity(text.len() * 2);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

fn scientific(number: f64) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let text = format!("{number:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // As in the locale: a multiplication sign, and the exponent in superscript digits.
    let digits: String = format!("{:02}", exponent.abs())
        .chars()
        .map(|digit| match digit {
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        })
        .collect();
    let sign = if exponent < 0 { "⁻" } else { "" };
    format!("{mantissa}×10{sign}{digits}")
}

/// `%s`
fn string<'v>(machine: &mut Machine<'v>, value: &Value<'v>) -> Result<Result<String, String>, Stop> {
    match value {
        Value::List(_) | Value::Growing(_) => nested(machine, value),
        map if qualify::is_map(map) => nested(machine, value),
        Value::Ip(_) | Value::Cidr { .. } => Ok(Err(not_a_string(value))),
        other => Ok(match convert::text_of(other) {
            Some(Ok(text)) => Ok(text),
            Some(Err(_)) => {
                Err(format!("could not convert argument {:?} to string", show::show(machine, other)))
            }
            None => Err(not_a_string(other)),
        }),
    }
}

fn not_a_string(value: &Value<'_>) -> String {
    format!(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
         timestamps, was given {}",
        value.type_name()
    )
}

/// A value inside a list or map. Recurses as deep as the value, limited by the expression's nesting.
fn nested<'v>(machine: &mut Machine<'v>, value: &Value<'v>) -> Result<Result<String, String>, Stop> {
    machine.allocate(super::strings::ELEMENT_BYTES)?;
    Ok(Ok(match value {
        Value::List(_) | Value::Growing(_) => {
            let list = machine.as_list(value);
            let mut text = "[".to_owned();
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                match nested(machine, element)? {
                    Ok(part) => {
                        machine.allocate(part.len() + 2)?;
                        text.push_str(&part);
                    }
                    Err(message) => return Ok(Err(message)),
                }
            }
            text.push(']');
            text
        }
        map if qualify::is_map(map) => {
            let mut pairs = Vec::new();
            for (key, value) in qualify::map_entries(machine, map) {
                let key_text = match &key {
                    Value::String(text) => format!("{:?}", &**text),
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) => show::show(machine, &key),
                    other => {
                        return Ok(Err(format!(
                            "no formatting function for map key of type {}",
                            other.type_name()
                        )));
                    }
                };
                match nested(machine, &value)? {
                    Ok(part) => {
                        machine.allocate(part.len() + key_text.len() + 2)?;
                        pairs.push((key_text, part));
                    }
                    Err(message) => return Ok(Err(message)),
                }
            }
            pairs.sort();
            let parts: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::String(text) => format!("{:?}", &**text),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("b{text:?}"),
            Err(_) => {
                return Ok(Err("could not convert argument to string".to_owned()));
            }
        },
        Value::Timestamp(time) => format!("timestamp(\"{time}\")"),
        Value::Duration(nanoseconds) => {
            format!("duration(\"{}\")", crate::values::time::duration_text(*nanoseconds))
        }
        Value::Double(number) if number.is_nan() => "\"NaN\"".to_owned(),
        Value::Double(number) if number.is_infinite() => {
            if *number > 0.0 {
                "\"+Inf\"".to_owned()
            } else {
                "\"-Inf\"".to_owned()
            }
        }
        Value::Double(number) => format!("{number:.6}"),
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Null | Value::Type(_) => {
            match convert::text_of(value) {
                Some(Ok(text)) => text,
                _ => return Ok(Err(not_a_string(value))),
            }
        }
        other => return Ok(Err(format!("no formatting function for {}", other.type_name()))),
    }))
}
