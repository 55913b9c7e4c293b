//! `format.…().validate(text)`: Kubernetes' named formats.

use super::{Answer, mismatch};
use crate::evaluate::machine::Machine;
use crate::evaluate::value::Value;
use crate::values::named_format::FORMATS;

pub(crate) fn get<'v, const NUMBER: usize>(_: &mut Machine<'v>, _: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Format(&FORMATS[NUMBER]))
}

pub(crate) fn named<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(name) = &arguments[0] else { return mismatch() };
    Ok(match FORMATS.iter().find(|format| format.name == &**name) {
        Some(format) => Value::some(Value::Format(format)),
        None => Value::Optional(None),
    })
}

pub(crate) fn validate<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [Value::Format(format), Value::String(text)] = arguments else { return mismatch() };
    let errors = (format.validate)(text);
    machine.allocate(errors.iter().map(String::len).sum())?;
    Ok(if errors.is_empty() {
        Value::Optional(None)
    } else {
        Value::some(Value::list(errors.into_iter().map(Value::shared_string).collect()))
    })
}
