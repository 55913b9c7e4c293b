//! The amounts that a request takes of a device's capacities.

use std::borrow::Cow;

use crate::amount::Amount;
use crate::error::AllocateError;
use crate::inventory::{Capacity, Policy, Range};

/// The amount taken of a capacity, rounded as its policy says; `None` where the policy does not allow the amount.
pub(crate) fn consumed<'c>(
    requested: Option<&'c Amount>,
    capacity: &'c Capacity,
    default_compared_as_written: bool,
) -> Result<Option<Cow<'c, Amount>>, AllocateError> {
    let amount = round(requested, capacity)?;
    let is_allowed = match &capacity.policy {
        None => true,
        Some(policy) => is_allowed(&amount, policy, default_compared_as_written)?,
    };
    Ok(is_allowed.then_some(amount))
}

fn round<'c>(
    requested: Option<&'c Amount>,
    capacity: &'c Capacity,
) -> Result<Cow<'c, Amount>, AllocateError> {
    let policy = capacity.policy.as_ref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return Ok(Cow::Borrowed(default.unwrap_or(&capacity.amount)));
    };
    let Some(policy) = policy else { return Ok(Cow::Borrowed(requested)) };
    if let Some(range) = &policy.range {
        return round_to_range(requested, range);
    }
    let next = policy.values.iter().find(|value| requested.nanos() <= value.nanos());
    Ok(Cow::Borrowed(next.unwrap_or(requested)))
}

fn round_to_range<'c>(requested: &'c Amount, range: &'c Range) -> Result<Cow<'c, Amount>, AllocateError> {
    if requested.nanos() < range.min.nanos() {
        return Ok(Cow::Borrowed(&range.min));
    }
    let Some(step) = &range.step else { return Ok(Cow::Borrowed(requested)) };
    let (step, min) = (step.units(), range.min.units());
    let added = requested.units().wrapping_sub(min);
    let steps = divide(added, step)?.wrapping_add(i64::from(remainder(added, step)? != 0));
    Ok(Cow::Owned(Amount::from_units(min.wrapping_add(step.wrapping_mul(steps)))))
}

fn is_allowed(amount: &Amount, policy: &Policy, as_written: bool) -> Result<bool, AllocateError> {
    if let Some(default) = &policy.default {
        let is_default =
            if as_written { amount.same_struct(default) } else { amount.nanos() == default.nanos() };
        if is_default {
            return Ok(true);
        }
    }
    if let Some(range) = &policy.range {
        if range.max.as_ref().is_some_and(|max| amount.nanos() > max.nanos()) {
            return Ok(false);
        }
        return match &range.step {
            Some(step) => {
                let added = amount.units().wrapping_sub(range.min.units());
                Ok(remainder(added, step.units())? == 0)
            }
            None => Ok(true),
        };
    }
    Ok(policy.values.is_empty() || policy.values.iter().any(|value| value.nanos() == amount.nanos()))
}

fn divide(value: i64, by: i64) -> Result<i64, AllocateError> {
    if by == 0 { Err(division_by_zero()) } else { Ok(value.wrapping_div(by)) }
}

fn remainder(value: i64, by: i64) -> Result<i64, AllocateError> {
    if by == 0 { Err(division_by_zero()) } else { Ok(value.wrapping_rem(by)) }
}

fn division_by_zero() -> AllocateError {
    AllocateError::Panic("runtime error: integer divide by zero".to_owned())
}
