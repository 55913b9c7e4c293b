//! Equality and order of values.

use std::cmp::Ordering;

use super::compared::WORTH_REMEMBERING;
use super::list::List;
use super::machine::{Machine, Stop};
use super::qualify;
use super::value::Value;

/// Result of an equality comparison: upstream's types return an error for unknown types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Equality {
    Equal,
    Different,
    /// `no such overload`
    Error,
}

impl From<bool> for Equality {
    fn from(equal: bool) -> Self {
        if equal { Equality::Equal } else { Equality::Different }
    }
}

/// `one == two`
pub(crate) fn equal<'v>(machine: &Machine<'v>, one: &Value<'v>, two: &Value<'v>) -> Result<Equality, Stop> {
    if matches!(one, Value::Null) || matches!(two, Value::Null) {
        machine.count_comparison()?;
        return Ok((matches!(one, Value::Null) && matches!(two, Value::Null)).into());
    }
    equals(machine, one, two)
}

/// Upstream's `one.Equal(two)`: like [`equal`], without its rule for null.
pub(crate) fn equals<'v>(machine: &Machine<'v>, one: &Value<'v>, two: &Value<'v>) -> Result<Equality, Stop> {
    machine.count_comparison()?;
    Ok(match (one, two) {
        (Value::Null, other) => matches!(other, Value::Null).into(),
        (Value::Bool(one), Value::Bool(two)) => (one == two).into(),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => (numbers(one, two) == Some(Ordering::Equal)).into(),
        (Value::String(one), Value::String(two)) => (**one == **two).into(),
        (Value::Bytes(one), Value::Bytes(two)) => (**one == **two).into(),
        (Value::Duration(one), Value::Duration(two)) => (one == two).into(),
        (Value::Timestamp(one), Value::Timestamp(two)) => (one == two).into(),
        (Value::Empty, Value::Empty) => Equality::Equal,
        (Value::Type(one), Value::Type(two)) => (one == two).into(),
        (Value::Optional(one), Value::Optional(two)) => match (one, two) {
            (None, None) => Equality::Equal,
            (Some(one), Some(two)) => equals(machine, one, two)?,
            _ => Equality::Different,
        },
        (Value::Quantity { value: one, .. }, Value::Quantity { value: two, result_of_sum: false }) => {
            (**one == **two).into()
        }
        (Value::Version(one), Value::Version(two)) => (**one == **two).into(),
        (Value::Ip(one), Value::Ip(two)) => (one == two).into(),
        (
            Value::Cidr { address: one, length: one_length },
            Value::Cidr { address: two, length: two_length },
        ) => (one == two && one_length == two_length).into(),
        (Value::Url(one), Value::Url(two)) => (one.to_string() == two.to_string()).into(),
        (Value::Format(one), Value::Format(two)) => (one.display_name == two.display_name).into(),
        (
            Value::Quantity { .. }
            | Value::Version(_)
            | Value::Ip(_)
            | Value::Cidr { .. }
            | Value::Url(_)
            | Value::Format(_),
            _,
        ) => Equality::Error,
        (Value::List(_) | Value::Growing(_), Value::List(_) | Value::Growing(_)) => lists(machine, one, two)?,
        (one, two) if qualify::is_map(one) && qualify::is_map(two) => maps(machine, one, two)?,
        _ => Equality::Different,
    })
}

fn lists<'v>(machine: &Machine<'v>, one: &Value<'v>, two: &Value<'v>) -> Result<Equality, Stop> {
    let (one, two) = (machine.as_list(one), machine.as_list(two));
    if one.len() != two.len() {
        return Ok(Equality::Different);
    }
    let found = elements(machine, &one, &two)?;
    // Only concatenated lists propagate an error of their elements.
    Ok(if found == Equality::Error && !one.is_joined() { Equality::Equal } else { found })
}

/// Compares the elements of two lists of the same length: `Error` where none differ and some have no equality.
///
/// Lists with shared parts, as in attacks, have far more elements than parts: every pair of parts is compared only once.
fn elements<'v>(machine: &Machine<'v>, one: &List<'v>, two: &List<'v>) -> Result<Equality, Stop> {
    if let Some(known) = machine.compared().get(one, two) {
        return Ok(known);
    }
    let before = machine.comparisons();
    let mut found = Equality::Equal;
    if let Some(halves) = one.halves_with(two) {
        for (one, two) in halves {
            match elements(machine, one, two)? {
                Equality::Equal => {}
                Equality::Error => found = Equality::Error,
                Equality::Different => {
                    found = Equality::Different;
                    break;
                }
            }
        }
    } else {
        for (first, second) in one.iter().zip(two.iter()) {
            match equal(machine, first, second)? {
                Equality::Equal => {}
                Equality::Error => found = Equality::Error,
                Equality::Different => {
                    found = Equality::Different;
                    break;
                }
            }
        }
    }
    if machine.comparisons() - before >= WORTH_REMEMBERING {
        machine.compared().remember(one, two, found);
    }
    Ok(found)
}

fn maps<'v>(machine: &Machine<'v>, one: &Value<'v>, two: &Value<'v>) -> Result<Equality, Stop> {
    if qualify::map_len(machine, one) != qualify::map_len(machine, two) {
        return Ok(Equality::Different);
    }
    for (key, value) in qualify::map_entries(machine, one) {
        let found = match qualify::map_find(machine, two, &key)? {
            Some(found) => found,
            None if matches!(two, Value::Domains { has_default: true, .. }) => {
                Value::Map(std::sync::Arc::default())
            }
            None => return Ok(Equality::Different),
        };
        if equal(machine, &value, &found)? == Equality::Different {
            return Ok(Equality::Different);
        }
    }
    Ok(Equality::Equal)
}

/// Order of two numbers of any types; `None` where one is not a number or NaN.
pub(crate) fn numbers(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => Some(one.cmp(two)),
        (Value::Uint(one), Value::Uint(two)) => Some(one.cmp(two)),
        (Value::Double(one), Value::Double(two)) => one.partial_cmp(two),
        (Value::Int(one), Value::Uint(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
        (Value::Uint(one), Value::Int(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
        (Value::Double(one), Value::Int(two)) => {
            double_with(*one, i64::MIN as f64, i64::MAX as f64, *two as f64)
        }
        (Value::Double(one), Value::Uint(two)) => double_with(*one, 0.0, u64::MAX as f64, *two as f64),
        (Value::Int(_) | Value::Uint(_), Value::Double(_)) => numbers(two, one).map(Ordering::reverse),
        _ => None,
    }
}

/// Order of a double and an integer converted to double: outside the integer's range the double decides.
fn double_with(double: f64, lowest: f64, highest: f64, other: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double < lowest {
        return Some(Ordering::Less);
    }
    if double > highest {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&other)
}

/// Why two values have no order.
pub(crate) enum Unordered {
    /// The first one's type has no order.
    Type,
    /// The other one's type does not fit.
    Other,
    NotANumber,
}

/// `one.Compare(two)` of upstream.
pub(crate) fn order(one: &Value<'_>, two: &Value<'_>) -> Result<Ordering, Unordered> {
    match (one, two) {
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(one, two).ok_or(Unordered::NotANumber),
        (Value::Bool(one), Value::Bool(two)) => Ok(one.cmp(two)),
        (Value::String(one), Value::String(two)) => Ok((**one).cmp(two)),
        (Value::Bytes(one), Value::Bytes(two)) => Ok((**one).cmp(two)),
        (Value::Duration(one), Value::Duration(two)) => Ok(one.cmp(two)),
        (Value::Timestamp(one), Value::Timestamp(two)) => Ok(one.cmp(two)),
        (Value::Double(one), _) if one.is_nan() => Err(Unordered::NotANumber),
        (
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => Err(Unordered::Other),
        _ => Err(Unordered::Type),
    }
}
