//! Quantities and semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Answer, fail, mismatch};
use tessera_api::Quantity;

use crate::evaluate::machine::Machine;
use crate::evaluate::value::{Ref, Value};
use crate::version::{Version, VersionError};

pub(crate) fn quantity<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    match Quantity::parse(text) {
        Ok(value) => Ok(Value::quantity(value)),
        Err(error) => fail(error.to_string()),
    }
}

pub(crate) fn is_quantity<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn unary<'v>(arguments: &[Value<'v>], apply: impl FnOnce(&Quantity) -> Answer<'v>) -> Answer<'v> {
    match &arguments[0] {
        Value::Quantity { value, .. } => apply(value),
        _ => mismatch(),
    }
}

pub(crate) fn quantity_sign<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    unary(arguments, |value| Ok(Value::Int(value.sign())))
}

pub(crate) fn quantity_float<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    unary(arguments, |value| Ok(Value::Double(value.as_approximate_float())))
}

pub(crate) fn quantity_integer<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    unary(arguments, |value| match value.as_int64() {
        Some(value) => Ok(Value::Int(value)),
        None => fail("cannot convert value to integer"),
    })
}

pub(crate) fn quantity_is_integer<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    unary(arguments, |value| Ok(Value::Bool(value.as_int64().is_some())))
}

fn order<'v>(arguments: &[Value<'v>], answer: impl FnOnce(Ordering) -> Value<'v>) -> Answer<'v> {
    match arguments {
        [Value::Quantity { value: one, .. }, Value::Quantity { value: two, .. }] => {
            Ok(answer((**one).cmp(two)))
        }
        [Value::Version(one), Value::Version(two)] => Ok(answer((**one).cmp(two))),
        _ => mismatch(),
    }
}

pub(crate) fn quantity_is_greater<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Bool(order == Ordering::Greater))
}

pub(crate) fn quantity_is_less<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Bool(order == Ordering::Less))
}

pub(crate) fn quantity_compare<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Int(order as i64))
}

fn combine<'v>(arguments: &[Value<'v>], apply: impl FnOnce(&Quantity, &Quantity) -> Quantity) -> Answer<'v> {
    let sum = match arguments {
        [Value::Quantity { value: one, .. }, Value::Quantity { value: two, .. }] => apply(one, two),
        [Value::Quantity { value, .. }, Value::Int(number)] => apply(value, &Quantity::decimal(*number)),
        _ => return mismatch(),
    };
    Ok(Value::Quantity { value: Ref::Shared(Arc::new(sum)), result_of_sum: true })
}

pub(crate) fn quantity_add<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    combine(arguments, Quantity::add)
}

pub(crate) fn quantity_sub<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    combine(arguments, Quantity::sub)
}

fn parse_version(arguments: &[Value<'_>]) -> Option<Result<Version, VersionError>> {
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Some(Version::parse(text)),
        [Value::String(text), Value::Bool(true)] => Some(Version::parse_normalized(text)),
        _ => None,
    }
}

pub(crate) fn semver<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match parse_version(arguments) {
        Some(Ok(version)) => Ok(Value::Version(Ref::Shared(Arc::new(version)))),
        Some(Err(error)) => fail(error.to_string()),
        None => mismatch(),
    }
}

pub(crate) fn is_semver<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    parse_version(arguments).map_or_else(mismatch, |parsed| Ok(Value::Bool(parsed.is_ok())))
}

pub(crate) fn semver_is_greater<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Bool(order == Ordering::Greater))
}

pub(crate) fn semver_is_less<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Bool(order == Ordering::Less))
}

pub(crate) fn semver_compare<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    order(arguments, |order| Value::Int(order as i64))
}

fn part<'v>(arguments: &[Value<'v>], part: impl FnOnce(&Version) -> u64) -> Answer<'v> {
    match &arguments[0] {
        // Go converts without a check.
        Value::Version(version) => Ok(Value::Int(part(version) as i64)),
        _ => mismatch(),
    }
}

pub(crate) fn semver_major<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |version| version.major)
}

pub(crate) fn semver_minor<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |version| version.minor)
}

pub(crate) fn semver_patch<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |version| version.patch)
}
