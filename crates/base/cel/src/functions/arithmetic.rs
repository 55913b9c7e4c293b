//! Operators, `size` and `in`.

use super::{Answer, fail, mismatch};
use crate::evaluate::compare::{self, Equality};
use crate::evaluate::cost;
use crate::evaluate::list::List;
use crate::evaluate::machine::Machine;
use crate::evaluate::qualify;
use crate::evaluate::value::{Ref, Value};
use crate::values::time::Timestamp;

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";

fn int<'v>(value: Option<i64>) -> Answer<'v> {
    value.map_or_else(|| fail(INT_OVERFLOW), |value| Ok(Value::Int(value)))
}

fn uint<'v>(value: Option<u64>) -> Answer<'v> {
    value.map_or_else(|| fail(UINT_OVERFLOW), |value| Ok(Value::Uint(value)))
}

fn duration<'v>(value: Option<i64>) -> Answer<'v> {
    value.map_or_else(|| fail(INT_OVERFLOW), |value| Ok(Value::Duration(value)))
}

fn timestamp<'v>(value: Result<Timestamp, &'static str>) -> Answer<'v> {
    value.map_or_else(fail, |value| Ok(Value::Timestamp(value)))
}

pub(crate) fn add<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [one, two] = arguments else { return mismatch() };
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_add(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_add(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one + two)),
        (Value::String(one), Value::String(two)) => {
            machine.allocate(one.len() + two.len())?;
            Ok(Value::shared_string([&**one, &**two].concat()))
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            machine.allocate(one.len() + two.len())?;
            Ok(Value::Bytes(Ref::Shared([&**one, &**two].concat().into())))
        }
        (Value::Duration(one), Value::Duration(two)) => duration(one.checked_add(*two)),
        (Value::Duration(length), Value::Timestamp(time))
        | (Value::Timestamp(time), Value::Duration(length)) => timestamp(time.plus(*length)),
        (Value::Growing(_), other) => match machine.grow(one, other)? {
            Some(grown) => Ok(grown),
            None => mismatch(),
        },
        (Value::List(one), Value::List(two)) => Ok(Value::List(one.clone().join(two.clone()))),
        (Value::List(one), Value::Growing(number)) => {
            let two = List::from(machine.growing(*number).to_vec());
            machine.allocate_elements(two.len())?;
            Ok(Value::List(one.clone().join(two)))
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::List(_),
            _,
        ) => mismatch(),
        _ => fail("no such overload: _+_"),
    }
}

pub(crate) fn subtract<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [one, two] = arguments else { return mismatch() };
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_sub(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_sub(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one - two)),
        (Value::Duration(one), Value::Duration(two)) => duration(one.checked_sub(*two)),
        (Value::Timestamp(one), Value::Timestamp(two)) => duration(one.since(two)),
        (Value::Timestamp(time), Value::Duration(length)) => match length.checked_neg() {
            Some(length) => timestamp(time.plus(length)),
            None => fail(INT_OVERFLOW),
        },
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::String(_),
            _,
        ) => mismatch(),
        _ => fail("no such overload: _-_"),
    }
}

pub(crate) fn multiply<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match arguments {
        [Value::Int(one), Value::Int(two)] => int(one.checked_mul(*two)),
        [Value::Uint(one), Value::Uint(two)] => uint(one.checked_mul(*two)),
        [Value::Double(one), Value::Double(two)] => Ok(Value::Double(one * two)),
        other => no_operator(other, "_*_"),
    }
}

pub(crate) fn divide<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => fail("division by zero"),
        [Value::Int(one), Value::Int(two)] => int(one.checked_div(*two)),
        [Value::Uint(one), Value::Uint(two)] => uint(one.checked_div(*two)),
        [Value::Double(one), Value::Double(two)] => Ok(Value::Double(one / two)),
        other => no_operator(other, "_/_"),
    }
}

pub(crate) fn modulo<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => fail("modulus by zero"),
        [Value::Int(one), Value::Int(two)] => int(one.checked_rem(*two)),
        [Value::Uint(one), Value::Uint(two)] => uint(one.checked_rem(*two)),
        other => no_operator(other, "_%_"),
    }
}

pub(crate) fn negate<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match arguments {
        [Value::Int(value)] => int(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => duration(value.checked_neg()),
        other => no_operator(other, "-_"),
    }
}

fn no_operator<'v>(arguments: &[Value<'v>], operator: &str) -> Answer<'v> {
    let is_number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    match arguments.first() {
        Some(Value::String(_) | Value::Duration(_) | Value::Timestamp(_)) => mismatch(),
        Some(value) if is_number(value) && !(matches!(value, Value::Double(_)) && operator == "_%_") => {
            if matches!(value, Value::Uint(_)) && operator == "-_" {
                fail("no such overload: -_")
            } else {
                mismatch()
            }
        }
        Some(Value::Bool(_)) if operator == "-_" => mismatch(),
        _ => fail(format!("no such overload: {operator}")),
    }
}

pub(crate) fn size<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    match &arguments[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Growing(_)) => {
            Ok(Value::Int(cost::size(machine, value) as i64))
        }
        value if qualify::is_map(value) => Ok(Value::Int(qualify::map_len(machine, value) as i64)),
        Value::Duration(_) | Value::Timestamp(_) => mismatch(),
        _ => fail("no such overload: size"),
    }
}

/// `in`
pub(crate) fn contains<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [wanted, within] = arguments else { return mismatch() };
    match within {
        Value::List(_) | Value::Growing(_) => {
            let list = machine.as_list(within);
            Ok(Value::Bool(is_element(machine, wanted, &list)?))
        }
        map if qualify::is_map(map) => Ok(Value::Bool(qualify::map_find(machine, map, wanted)?.is_some())),
        _ => mismatch(),
    }
}

/// Whether a list has an element equal to a value.
pub(crate) fn is_element<'v>(
    machine: &Machine<'v>,
    wanted: &Value<'v>,
    list: &List<'v>,
) -> Result<bool, crate::evaluate::machine::Stop> {
    for element in list.iter() {
        if compare::equals(machine, wanted, element)? == Equality::Equal {
            return Ok(true);
        }
    }
    Ok(false)
}
