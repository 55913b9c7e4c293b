//! Conversions between types.

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::Machine;
use crate::evaluate::show;
use crate::evaluate::value::{Ref, Value};
use crate::values::time::{self, Timestamp};

pub(crate) fn identity<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    Ok(arguments[0].clone())
}

pub(crate) fn type_of<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Type(arguments[0].type_name()))
}

fn impossible<'v>(from: &Value<'v>, to: &str) -> Answer<'v> {
    fail(format!("type conversion error from '{}' to '{to}'", from.type_name()))
}

pub(crate) fn to_bool<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => impossible(&arguments[0], "bool"),
        },
        other => impossible(other, "bool"),
    }
}

pub(crate) fn to_bytes<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::String(text) => {
            machine.allocate(text.len())?;
            Ok(Value::Bytes(Ref::Shared(text.as_bytes().into())))
        }
        other => impossible(other, "bytes"),
    }
}

pub(crate) fn to_double<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => match parse_double(text) {
            Some(value) => Ok(Value::Double(value)),
            None => impossible(&arguments[0], "double"),
        },
        other => impossible(other, "double"),
    }
}

/// Parses a double like Go's `strconv.ParseFloat`: also in hexadecimal, and with underscores where Go allows them.
fn parse_double(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let lower = unsigned.to_ascii_lowercase();
    if matches!(lower.as_str(), "inf" | "infinity") {
        return Some(sign * f64::INFINITY);
    }
    if lower == "nan" {
        return Some(f64::NAN);
    }
    if let Some(hexadecimal) = lower.strip_prefix("0x") {
        return hexadecimal_double(hexadecimal).map(|value| sign * value);
    }
    // Underscores are allowed between digits.
    let bytes = unsigned.as_bytes();
    let is_digit = |index: Option<usize>| {
        index.and_then(|index| bytes.get(index)).is_some_and(|byte| byte.is_ascii_digit())
    };
    for (index, byte) in bytes.iter().enumerate() {
        if *byte == b'_' && !(is_digit(index.checked_sub(1)) && is_digit(Some(index + 1))) {
            return None;
        }
    }
    let unsigned = &unsigned.replace('_', "");
    if !unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        return None;
    }
    let value: f64 = unsigned.parse().ok()?;
    value.is_finite().then_some(sign * value)
}

fn hexadecimal_double(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() + fraction.len() > 13 {
        return None;
    }
    let digits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let value = digits as f64 * 2f64.powi(exponent - 4 * fraction.len() as i32);
    value.is_finite().then_some(value)
}

pub(crate) fn to_duration<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::String(text) => match time::parse_duration(text) {
            Some(nanoseconds) => Ok(Value::Duration(nanoseconds)),
            None => impossible(&arguments[0], "google.protobuf.Duration"),
        },
        other => impossible(other, "google.protobuf.Duration"),
    }
}

pub(crate) fn to_int<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Double(value) => {
            // The bounds themselves are excluded: they are not exact as doubles.
            if *value > i64::MIN as f64 && *value < i64::MAX as f64 {
                Ok(Value::Int(*value as i64))
            } else {
                fail("integer overflow")
            }
        }
        Value::Duration(nanoseconds) => Ok(Value::Int(*nanoseconds)),
        Value::String(text) => match parse_int(text) {
            Some(value) => Ok(Value::Int(value)),
            None => impossible(&arguments[0], "int"),
        },
        Value::Timestamp(time) => Ok(Value::Int(time.seconds())),
        Value::Uint(value) => {
            i64::try_from(*value).map_or_else(|_| fail("integer overflow"), |value| Ok(Value::Int(value)))
        }
        other => impossible(other, "int"),
    }
}

fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

pub(crate) fn to_uint<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Double(value) => {
            if *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 {
                Ok(Value::Uint(*value as u64))
            } else {
                fail("unsigned integer overflow")
            }
        }
        Value::Int(value) => u64::try_from(*value)
            .map_or_else(|_| fail("unsigned integer overflow"), |value| Ok(Value::Uint(value))),
        // Go's parser of unsigned numbers accepts no sign.
        Value::String(text) if !text.starts_with('+') => match text.parse() {
            Ok(value) => Ok(Value::Uint(value)),
            Err(_) => impossible(&arguments[0], "uint"),
        },
        other => impossible(other, "uint"),
    }
}

pub(crate) fn to_string<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match text_of(&arguments[0]) {
        Some(Ok(text)) => {
            machine.allocate(text.len())?;
            Ok(Value::shared_string(text))
        }
        Some(Err(message)) => fail(message),
        None => mismatch(),
    }
}

/// The text of a value convertible by `string()`.
pub(crate) fn text_of(value: &Value<'_>) -> Option<Result<String, &'static str>> {
    Some(Ok(match value {
        Value::String(text) => (**text).to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Err("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Double(value) => show::double(*value),
        Value::Duration(nanoseconds) => time::duration_text(*nanoseconds),
        Value::Int(value) => value.to_string(),
        Value::Timestamp(time) => time.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr { address, length } => format!("{address}/{length}"),
        Value::Type(name) => (*name).to_owned(),
        Value::Null => "null".to_owned(),
        _ => return None,
    }))
}

pub(crate) fn to_timestamp<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Int(seconds) => match Timestamp::from_seconds(*seconds) {
            Ok(time) => Ok(Value::Timestamp(time)),
            Err(message) => fail(message),
        },
        Value::String(text) => match Timestamp::parse(text) {
            Some(Ok(time)) => Ok(Value::Timestamp(time)),
            Some(Err(message)) => fail(message),
            None => impossible(&arguments[0], "google.protobuf.Timestamp"),
        },
        other => impossible(other, "google.protobuf.Timestamp"),
    }
}
