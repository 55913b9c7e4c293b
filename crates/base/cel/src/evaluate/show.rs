//! Values as text: in messages as Go prints them, and for people in CEL's syntax.

use super::machine::Machine;
use super::qualify;
use super::value::Value;

/// Longest text of one value.
const LONGEST: usize = 1_000;

/// Go's `%g` of a double.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // The shortest form has an exponent below 10^-4 and from 10^6 on.
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A value as printed by Go's `%v`.
pub(crate) fn show<'v>(machine: &Machine<'v>, value: &Value<'v>) -> String {
    match value {
        Value::String(text) => clip((**text).to_owned()),
        Value::Uint(value) => value.to_string(),
        Value::Null => "NULL_VALUE".to_owned(),
        Value::Optional(Some(inner)) => clip(format!("optional({})", show(machine, inner))),
        other => literal(machine, other),
    }
}

/// A value in CEL's syntax, shortened if long.
pub(crate) fn literal<'v>(machine: &Machine<'v>, value: &Value<'v>) -> String {
    let mut text = String::new();
    write_literal(machine, value, &mut text);
    clip(text)
}

fn clip(mut text: String) -> String {
    if text.len() > LONGEST {
        let mut end = LONGEST;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

fn write_literal<'v>(machine: &Machine<'v>, value: &Value<'v>, text: &mut String) {
    use std::fmt::Write as _;
    if text.len() > LONGEST {
        return;
    }
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Null => write!(text, "null"),
        Value::Bool(value) => write!(text, "{value}"),
        Value::Int(value) => write!(text, "{value}"),
        Value::Uint(value) => write!(text, "{value}u"),
        Value::Double(value) => write!(text, "{}", double(*value)),
        Value::String(value) => write!(text, "{:?}", &**value),
        Value::Bytes(value) => write!(text, "b\"{}\"", value.escape_ascii()),
        Value::Duration(nanoseconds) => {
            write!(text, "duration(\"{}\")", crate::values::time::duration_text(*nanoseconds))
        }
        Value::Timestamp(time) => write!(text, "timestamp(\"{time}\")"),
        Value::Type(name) => write!(text, "{name}"),
        Value::Empty => write!(text, "{}{{}}", value.type_name()),
        Value::Optional(None) => write!(text, "optional.none()"),
        Value::Optional(Some(inner)) => {
            text.push_str("optional.of(");
            write_literal(machine, inner, text);
            write!(text, ")")
        }
        Value::Quantity { value, .. } => write!(text, "quantity(\"{}\")", value.plain()),
        Value::Version(version) => {
            write!(text, "semver(\"{}.{}.{}\")", version.major, version.minor, version.patch)
        }
        Value::Ip(address) => write!(text, "ip(\"{address}\")"),
        Value::Cidr { address, length } => write!(text, "cidr(\"{address}/{length}\")"),
        Value::Url(url) => write!(text, "url(\"{url}\")"),
        Value::Format(format) => write!(text, "format.{}()", format.name),
        Value::Error(message) => write!(text, "error: {message}"),
        Value::List(list) => {
            text.push('[');
            for (index, item) in list.iter().enumerate() {
                if text.len() > LONGEST {
                    break;
                }
                if index > 0 {
                    text.push_str(", ");
                }
                write_literal(machine, item, text);
            }
            write!(text, "]")
        }
        Value::Growing(number) => write!(text, "[… {} elements]", machine.growing(*number).len()),
        Value::GrowingMap(number) => write!(text, "{{… {} entries}}", machine.growing_map(*number).len()),
        Value::Map(_) | Value::Device | Value::Domains { .. } | Value::Domain { .. } => {
            text.push('{');
            for (index, (key, value)) in qualify::map_entries(machine, value).iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write_literal(machine, key, text);
                text.push_str(": ");
                write_literal(machine, value, text);
            }
            write!(text, "}}")
        }
    };
}
