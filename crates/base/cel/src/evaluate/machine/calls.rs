//! Calls of functions.

use smallvec::SmallVec;

use super::Machine;
use super::budget::Stop;
use crate::check::types::Type;
use crate::evaluate::cost::{self, CostRule};
use crate::evaluate::program::{CallSite, PatternFunction, Target};
use crate::evaluate::qualify;
use crate::evaluate::value::Value;

impl<'v> Machine<'v> {
    pub(super) fn call(&mut self, site: &'v CallSite) -> Result<(), Stop> {
        let first = self.stack.len() - site.arguments as usize;
        let arguments: SmallVec<[Value<'v>; 3]> = self.stack.drain(first..).collect();
        let result = self.call_with(site, &arguments)?;
        self.stack.push(result);
        Ok(())
    }

    /// Makes a call outside a program.
    pub(crate) fn call_constant(
        &mut self,
        site: &CallSite,
        arguments: &[Value<'v>],
    ) -> Result<Value<'v>, Stop> {
        self.call_with(site, arguments)
    }

    pub(super) fn call_with(&mut self, site: &CallSite, arguments: &[Value<'v>]) -> Result<Value<'v>, Stop> {
        let needs_result = matches!(site.rule, CostRule::NewList | CostRule::TraverseResultTwice);
        if !needs_result {
            let cost = match site.rule {
                CostRule::Fixed(cost) => cost,
                rule => {
                    cost::cost(self, rule, arguments, None).map_err(|reason| Stop::Internal(reason.into()))?
                }
            };
            self.charge(cost)?;
        }
        let result = match arguments.iter().find(|argument| argument.is_error()) {
            Some(error) => error.clone(),
            None => self.invoke(site, arguments)?,
        };
        if needs_result {
            let cost = cost::cost(self, site.rule, arguments, Some(&result))
                .map_err(|reason| Stop::Internal(reason.into()))?;
            self.charge(cost)?;
        }
        Ok(result)
    }

    pub(super) fn invoke(&mut self, site: &CallSite, arguments: &[Value<'v>]) -> Result<Value<'v>, Stop> {
        match &site.target {
            Target::Direct(implementation) => implementation(self, arguments),
            Target::Overload(overload, implementation) => {
                if fits(self, &overload.arguments, arguments) {
                    implementation(self, arguments)
                } else {
                    Ok(no_such_overload(site.function, arguments))
                }
            }
            Target::Dispatch(candidates) => {
                for (overload, implementation) in candidates {
                    if fits(self, &overload.arguments, arguments) {
                        return implementation(self, arguments);
                    }
                }
                Ok(no_such_overload(site.function, arguments))
            }
            Target::Pattern(function, pattern) => {
                let Value::String(text) = &arguments[0] else { return Ok(Value::error("no such overload")) };
                match function {
                    PatternFunction::Matches => Ok(Value::Bool(pattern.is_match(text))),
                    PatternFunction::Find => super::patterns::find(self, pattern, text),
                    PatternFunction::FindAll => {
                        super::patterns::find_all(self, pattern, text, arguments.get(2))
                    }
                }
            }
            Target::Missing => Ok(Value::error(format!("no such overload: {}", site.function))),
        }
    }
}

/// The error of a call without matching overload.
pub(crate) fn no_such_overload<'v>(function: &str, arguments: &[Value<'v>]) -> Value<'v> {
    let types: Vec<&str> = arguments.iter().map(Value::type_name).collect();
    Value::error(format!("no such overload: {function}({})", types.join(", ")))
}

pub(super) fn fits<'v>(machine: &Machine<'v>, wanted: &[Type], arguments: &[Value<'v>]) -> bool {
    wanted.len() == arguments.len()
        && wanted.iter().zip(arguments).all(|(wanted, argument)| is_assignable(machine, wanted, argument))
}

/// Whether a value is of a type; for lists and maps only the first element is checked.
pub(super) fn is_assignable<'v>(machine: &Machine<'v>, wanted: &Type, value: &Value<'v>) -> bool {
    match (wanted, value) {
        (Type::Dyn | Type::Any | Type::Parameter(_), _) => true,
        (Type::List(element), Value::List(list)) => {
            list.get(0).is_none_or(|first| is_assignable(machine, element, first))
        }
        (Type::List(element), Value::Growing(number)) => {
            machine.growing(*number).first().is_none_or(|first| is_assignable(machine, element, first))
        }
        (Type::Map(pair), map) if qualify::is_map(map) => {
            let fit = |(key, value): &(Value<'v>, Value<'v>)| {
                is_assignable(machine, &pair.0, key) && is_assignable(machine, &pair.1, value)
            };
            match map {
                Value::Map(map) => map.entries().first().is_none_or(fit),
                Value::GrowingMap(number) => machine.growing_map(*number).entries().first().is_none_or(fit),
                other => qualify::map_entries(machine, other).first().is_none_or(fit),
            }
        }
        (Type::List(_) | Type::Map(_), _) => false,
        (wanted, value) => crate::evaluate::value::runtime_name(wanted) == value.type_name(),
    }
}
