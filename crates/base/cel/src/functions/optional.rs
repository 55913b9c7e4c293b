//! Optional values.

use super::{Answer, fail, mismatch};
use crate::evaluate::cost;
use crate::evaluate::machine::Machine;
use crate::evaluate::show::show;
use crate::evaluate::value::Value;

pub(crate) fn of<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::some(arguments[0].clone()))
}

pub(crate) fn of_non_zero<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let is_zero = match &arguments[0] {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::Timestamp(time) => time.is_year_one(),
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Growing(_)) => {
            cost::size(machine, value) == 0
        }
        value if crate::evaluate::qualify::is_map(value) => cost::size(machine, value) == 0,
        _ => false,
    };
    Ok(if is_zero { Value::Optional(None) } else { Value::some(arguments[0].clone()) })
}

pub(crate) fn none<'v>(_: &mut Machine<'v>, _: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Optional(None))
}

pub(crate) fn value<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => fail("optional.none() dereference"),
        _ => mismatch(),
    }
}

pub(crate) fn has_value<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => mismatch(),
    }
}

pub(crate) fn unwrap<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    machine.allocate_elements(list.len())?;
    let mut items = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(inner)) => items.push((**inner).clone()),
            Value::Optional(None) => {}
            other => return fail(format!("value {} is not optional", show(machine, other))),
        }
    }
    Ok(Value::list(items))
}
