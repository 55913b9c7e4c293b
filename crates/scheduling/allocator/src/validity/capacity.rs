//! The amounts of a device's capacities taken by a request.

use std::borrow::Cow;

use tessera_api::quantity::QuantityFormat;

use super::assignment::Assignment;
use crate::amount::Amount;
use crate::error::AllocateError;
use crate::inventory::{Capacity, Policy, Range};

/// Rules for computing amounts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arithmetic {
    /// See [`crate::features::UpstreamBugs::amounts_wrap`].
    pub wraps: bool,
    /// Whether ranges are computed in thousandths of a unit where possible. Not together with `wraps`.
    pub has_thousandths: bool,
    /// See [`crate::features::UpstreamBugs::default_compared_as_written`].
    pub default_compared_as_written: bool,
}

impl Arithmetic {
    /// The rules of the newest release with default gates.
    pub const WITHOUT_BUGS: Self =
        Arithmetic { wraps: false, has_thousandths: true, default_compared_as_written: false };
}

/// Why the amount for a request cannot be computed; Kubernetes' texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AmountError {
    /// The step of the range is zero: Kubernetes panics.
    #[error("runtime error: integer divide by zero")]
    DivisionByZero,
    /// The amount is too large or too fine, as requested or rounded up.
    #[error("capacity request cannot be represented in the device's range arithmetic: {0}")]
    NotRepresentable(String),
    /// The amount is below zero.
    #[error("capacity value is negative")]
    Negative,
}

/// A capacity of a device, by its cell, without a computable amount.
#[derive(Debug)]
pub(crate) struct CapacityError {
    pub cell: u32,
    pub error: AmountError,
}

/// The amount taken of a capacity, rounded by its policy; `None` where the policy does not allow the amount.
pub(crate) fn consumed<'c>(
    requested: Option<&'c Amount>,
    capacity: &'c Capacity,
    arithmetic: Arithmetic,
) -> Result<Option<Cow<'c, Amount>>, AmountError> {
    let amount = round(requested, capacity, arithmetic)?;
    if amount.nanos() < 0 && !arithmetic.wraps {
        return Err(AmountError::Negative);
    }
    let is_allowed = match &capacity.policy {
        None => true,
        Some(policy) => is_allowed(&amount, policy, arithmetic)?,
    };
    Ok(is_allowed.then_some(amount))
}

fn round<'c>(
    requested: Option<&'c Amount>,
    capacity: &'c Capacity,
    arithmetic: Arithmetic,
) -> Result<Cow<'c, Amount>, AmountError> {
    let policy = capacity.policy.as_ref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return Ok(Cow::Borrowed(default.unwrap_or(&capacity.amount)));
    };
    let Some(policy) = policy else { return Ok(Cow::Borrowed(requested)) };
    if let Some(range) = &policy.range {
        if requested.nanos() < range.min.nanos() {
            return Ok(Cow::Borrowed(&range.min));
        }
        let Some(step) = &range.step else { return Ok(Cow::Borrowed(requested)) };
        return round_to_step(requested, range, step, arithmetic).map(Cow::Owned);
    }
    let next = policy.values.iter().find(|value| requested.nanos() <= value.nanos());
    Ok(Cow::Borrowed(next.unwrap_or(requested)))
}

/// Rounds an amount, at least the range's minimum, up to the next step.
fn round_to_step(
    requested: &Amount,
    range: &Range,
    step: &Amount,
    arithmetic: Arithmetic,
) -> Result<Amount, AmountError> {
    let format = step.quantity().format();
    if arithmetic.has_thousandths
        && let Some((min, step)) = thousandths(range)
    {
        let Some(requested_thousandths) = requested.thousandths() else {
            return not_representable(format!("request {requested} is not a representable milli value"));
        };
        let steps = steps(requested_thousandths, min, step)?;
        if steps > i64::MAX.wrapping_sub(min).wrapping_div(step) {
            return not_representable(format!(
                "rounding request {requested} up to the next step passes the milli-value range"
            ));
        }
        let rounded = min.wrapping_add(step.wrapping_mul(steps));
        return Ok(match rounded % 1000 {
            0 => Amount::from_units(rounded / 1000, format),
            _ => Amount::from_thousandths(rounded, format),
        });
    }
    if !arithmetic.wraps && requested.exceeds_64_bits() {
        return not_representable(format!("request {requested} exceeds MaxInt64"));
    }
    let (step, min) = (step.units(), range.min.units());
    let steps = steps(requested.units(), min, step)?;
    if !arithmetic.wraps && min >= 0 && steps > (i64::MAX - min).wrapping_div(step) {
        return not_representable(format!(
            "rounding request {requested} up to the next step passes MaxInt64"
        ));
    }
    let rounded = min.wrapping_add(step.wrapping_mul(steps));
    let format = if arithmetic.wraps { QuantityFormat::BinarySi } else { format };
    Ok(Amount::from_units(rounded, format))
}

fn not_representable<T>(text: String) -> Result<T, AmountError> {
    Err(AmountError::NotRepresentable(text))
}

/// Minimum and step of a range in thousandths of a unit, if all its values are whole numbers of them.
fn thousandths(range: &Range) -> Option<(i64, i64)> {
    if let Some(max) = &range.max {
        max.thousandths()?;
    }
    let step = range.step.as_ref()?.thousandths()?;
    (step >= 1).then_some((range.min.thousandths()?, step))
}

/// Number of steps from `min` to at least `requested`.
fn steps(requested: i64, min: i64, step: i64) -> Result<i64, AmountError> {
    let added = requested.wrapping_sub(min);
    let is_between = remainder(added, step)? != 0;
    Ok(added.wrapping_div(step).wrapping_add(i64::from(is_between)))
}

fn is_allowed(amount: &Amount, policy: &Policy, arithmetic: Arithmetic) -> Result<bool, AmountError> {
    if let Some(default) = &policy.default {
        let is_default = if arithmetic.default_compared_as_written {
            amount.same_struct(default)
        } else {
            amount.nanos() == default.nanos()
        };
        if is_default {
            return Ok(true);
        }
    }
    if let Some(range) = &policy.range {
        if range.max.as_ref().is_some_and(|max| amount.nanos() > max.nanos()) {
            return Ok(false);
        }
        let Some(step) = &range.step else { return Ok(true) };
        let (amount, min, step) = match thousandths(range).filter(|_| arithmetic.has_thousandths) {
            Some((min, step)) => match amount.thousandths() {
                Some(amount) => (amount, min, step),
                None => return Ok(false),
            },
            None => (amount.units(), range.min.units(), step.units()),
        };
        return Ok(remainder(amount.wrapping_sub(min), step)? == 0);
    }
    Ok(policy.values.is_empty() || policy.values.iter().any(|value| value.nanos() == amount.nanos()))
}

fn remainder(value: i64, by: i64) -> Result<i64, AmountError> {
    if by == 0 { Err(AmountError::DivisionByZero) } else { Ok(value.wrapping_rem(by)) }
}

impl Assignment<'_, '_> {
    /// The error ending the attempt where a slot's amount of a device's capacity cannot be computed. `action` names the
    /// current step, such as `checking capacity`; `device` is the device's name in the text.
    pub(crate) fn capacity_error(
        &self,
        slot: usize,
        action: &str,
        device: &str,
        error: &CapacityError,
    ) -> AllocateError {
        let CapacityError { cell, error } = error;
        if *error == AmountError::DivisionByZero {
            return AllocateError::Panic(error.to_string());
        }
        let slot = &self.slots[slot];
        let inventory = self.basis.inventory;
        AllocateError::Fatal(format!(
            "claim {}, request {}: {action} for device {device}: capacity {:?}: {error}",
            self.claims[slot.claim as usize].reference(),
            slot.ask.name,
            inventory.text(inventory.values.capacities[*cell as usize].name),
        ))
    }
}
