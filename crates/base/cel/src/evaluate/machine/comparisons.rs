//! Comparisons and logic.

use super::Machine;
use super::budget::Stop;
use crate::evaluate::compare::{self, Equality, Unordered};
use crate::evaluate::cost::{self, CostRule};
use crate::evaluate::program::{CallSite, Comparison, ConstantSet, OrderResult, Test};
use crate::evaluate::value::Value;

impl<'v> Machine<'v> {
    #[inline(always)]
    pub(super) fn test(
        &mut self,
        value: Value<'v>,
        constant: &'v Value<'static>,
        test: Test,
        rule: CostRule,
    ) -> Result<Value<'v>, Stop> {
        if let (Value::String(one), Value::String(two), Test::Equal | Test::NotEqual) =
            (&value, constant, test)
        {
            self.charge(cost::of_equal_texts(one, two))?;
            return Ok(Value::Bool((**one == **two) == (test == Test::Equal)));
        }
        let operands = [value, constant.borrowed()];
        let cost = match rule {
            CostRule::Fixed(cost) => cost,
            rule => cost::cost(self, rule, &operands, None).unwrap_or(1),
        };
        self.charge(cost)?;
        let [one, two] = operands;
        match test {
            Test::Equal => self.equal(one, two, false),
            Test::NotEqual => self.equal(one, two, true),
            Test::Order(comparison) => Ok(compare(comparison, one, two)),
        }
    }

    #[inline(always)]
    pub(super) fn test_order(
        &mut self,
        value: Value<'v>,
        constant: &'v Value<'static>,
        site: &CallSite,
        then: OrderResult,
    ) -> Result<Value<'v>, Stop> {
        let order = match (&value, constant) {
            (Value::Quantity { value: one, .. }, Value::Quantity { value: two, .. }) => (**one).cmp(two),
            (Value::Version(one), Value::Version(two)) => (**one).cmp(two),
            _ => {
                let operands = [value, constant.borrowed()];
                let result = match operands.iter().find(|operand| operand.is_error()) {
                    Some(error) => error.clone(),
                    None => self.invoke(site, &operands)?,
                };
                if let OrderResult::Compared(comparison, number) = then {
                    self.charge(1)?;
                    return Ok(compare(comparison, result, Value::Int(number)));
                }
                return Ok(result);
            }
        };
        Ok(match then {
            OrderResult::Number => Value::Int(order as i64),
            OrderResult::Greater => Value::Bool(order == std::cmp::Ordering::Greater),
            OrderResult::Less => Value::Bool(order == std::cmp::Ordering::Less),
            OrderResult::Compared(comparison, number) => {
                self.charge(1)?;
                compare(comparison, Value::Int(order as i64), Value::Int(number))
            }
        })
    }

    pub(super) fn logic_term(&mut self, and: bool, end: u32) -> Option<u32> {
        let term = self.pop();
        let outcome = self.stack.last_mut()?;
        match term {
            Value::Bool(value) if value != and => {
                *outcome = Value::Bool(value);
                return Some(end);
            }
            Value::Bool(_) => {}
            _ if outcome.is_error() => {}
            Value::Error(message) => *outcome = Value::Error(message),
            _ => *outcome = Value::error("no such overload"),
        }
        None
    }

    pub(super) fn equal(&mut self, one: Value<'v>, two: Value<'v>, negate: bool) -> Result<Value<'v>, Stop> {
        if one.is_error() {
            return Ok(one);
        }
        if two.is_error() {
            return Ok(two);
        }
        let equality = compare::equal(self, &one, &two)?;
        Ok(match equality {
            Equality::Error if !negate => Value::error("no such overload"),
            equality => Value::Bool((equality == Equality::Equal) != negate),
        })
    }
}

pub(super) fn compare<'v>(comparison: Comparison, one: Value<'v>, two: Value<'v>) -> Value<'v> {
    use std::cmp::Ordering;
    if one.is_error() {
        return one;
    }
    if two.is_error() {
        return two;
    }
    match compare::order(&one, &two) {
        Ok(order) => Value::Bool(match comparison {
            Comparison::Less => order == Ordering::Less,
            Comparison::LessEquals => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterEquals => order != Ordering::Less,
        }),
        Err(Unordered::NotANumber) => Value::error("NaN values cannot be ordered"),
        Err(Unordered::Other) => Value::error("no such overload"),
        Err(Unordered::Type) => Value::error(match comparison {
            Comparison::Less => "no such overload: _<_",
            Comparison::LessEquals => "no such overload: _<=_",
            Comparison::Greater => "no such overload: _>_",
            Comparison::GreaterEquals => "no such overload: _>=_",
        }),
    }
}

pub(super) fn in_set<'v>(set: &ConstantSet, value: Value<'v>) -> Result<Value<'v>, Stop> {
    Ok(Value::Bool(match &value {
        Value::Error(_) => return Ok(value),
        Value::String(text) => set.strings.contains(&**text),
        Value::Bool(value) => set.bools[usize::from(*value)],
        Value::Int(value) => set.ints.contains(value),
        Value::Uint(value) => set.uints.contains(value),
        Value::Double(value) => !value.is_nan() && set.doubles.contains(&(value + 0.0).to_bits()),
        Value::Bytes(_) => return Err(crate::evaluate::map::Unhashable("types.Bytes").into()),
        Value::Version(_) => return Err(crate::evaluate::map::Unhashable("cel.Semver").into()),
        Value::Format(_) => return Err(crate::evaluate::map::Unhashable("cel.Format").into()),
        _ => false,
    }))
}
