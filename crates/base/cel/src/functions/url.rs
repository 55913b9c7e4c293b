//! Functions of URLs.

use std::sync::Arc;

use super::{Answer, fail, mismatch};
use crate::evaluate::machine::Machine;
use crate::evaluate::map::Map;
use crate::evaluate::value::Value;
use crate::values::url::{Url, request_error};

pub(crate) fn url<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    machine.allocate(text.len() * 2)?;
    match Url::parse(text) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(message) => fail(format!("URL parse error during conversion from string: {message}")),
    }
}

pub(crate) fn is_url<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::String(text) = &arguments[0] else { return mismatch() };
    Ok(Value::Bool(request_error(text).is_none()))
}

fn part<'v>(arguments: &[Value<'v>], part: impl FnOnce(&Url) -> String) -> Answer<'v> {
    match &arguments[0] {
        Value::Url(url) => Ok(Value::shared_string(part(url))),
        _ => mismatch(),
    }
}

pub(crate) fn scheme<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |url| url.scheme.clone())
}

pub(crate) fn host<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |url| url.host.clone())
}

pub(crate) fn hostname<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |url| url.split_host().0.to_owned())
}

pub(crate) fn port<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, |url| url.split_host().1.to_owned())
}

pub(crate) fn escaped_path<'v>(_: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    part(arguments, Url::escaped_path)
}

pub(crate) fn query<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::Url(url) = &arguments[0] else { return mismatch() };
    machine.allocate(url.query.len() * 4)?;
    Ok(Value::Map(Arc::new(Map::from_strings(url.query_values()))))
}
