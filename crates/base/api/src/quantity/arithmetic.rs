//! Sums, differences, order and doubles of quantities, as Kubernetes computes them.

use std::cmp::Ordering;
use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::ToPrimitive as _;

use super::{Amount, Quantity};

impl Quantity {
    /// The nearest double, computed as upstream computes it.
    pub fn as_approximate_float(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Scaled { value, scale } => (*value as f64, *scale),
            Amount::Decimal { unscaled, scale } => (unscaled.to_f64().unwrap_or(f64::INFINITY), -scale),
        };
        if exponent == 0 { base } else { base * power_of_ten(exponent) }
    }

    /// The sum.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        if let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.amount, &other.amount)
            && let Some(sum) = add_scaled((*value, *scale), (*other_value, *other_scale))
        {
            return self.computed(sum);
        }
        self.add_decimals(other, false)
    }

    /// The difference.
    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        if let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.amount, &other.amount)
            && let Some(difference) = add_scaled((*value, *scale), (other_value.wrapping_neg(), *other_scale))
        {
            return self.computed(difference);
        }
        self.add_decimals(other, true)
    }

    fn add_decimals(&self, other: &Self, negate: bool) -> Self {
        let ((mut one, mut one_scale), (mut two, two_scale)) = (self.unscaled(), other.unscaled());
        match one_scale.cmp(&two_scale) {
            Ordering::Less => {
                one *= BigInt::from(10).pow((two_scale - one_scale) as u32);
                one_scale = two_scale;
            }
            Ordering::Greater => two *= BigInt::from(10).pow((one_scale - two_scale) as u32),
            Ordering::Equal => {}
        }
        let unscaled = Arc::new(if negate { one - two } else { one + two });
        self.computed(Amount::Decimal { unscaled, scale: one_scale })
    }

    fn unscaled(&self) -> (BigInt, i32) {
        match &self.amount {
            Amount::Scaled { value, scale } => (BigInt::from(*value), -scale),
            Amount::Decimal { unscaled, scale } => ((**unscaled).clone(), *scale),
        }
    }

    fn computed(&self, amount: Amount) -> Self {
        Quantity { amount, format: self.format, keeps_text: false }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    /// By value, whatever the suffixes.
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.amount, &other.amount)
        {
            if scale == other_scale {
                return value.cmp(other_value);
            }
            let difference = scale.abs_diff(*other_scale);
            // 2^63 * 10^19 fits 128 bits.
            if difference <= 19 {
                let factor = 10i128.pow(difference);
                let (one, two) = (i128::from(*value), i128::from(*other_value));
                return if scale > other_scale { (one * factor).cmp(&two) } else { one.cmp(&(two * factor)) };
            }
        }
        self.add_decimals(other, true).sign().cmp(&0)
    }
}

/// Go's `math.Pow10`: exact table values, 0 and infinity beyond.
fn power_of_ten(exponent: i32) -> f64 {
    match exponent {
        ..-323 => 0.0,
        309.. => f64::INFINITY,
        _ => format!("1e{exponent}").parse().unwrap_or(f64::NAN),
    }
}

fn add_scaled(one: (i64, i32), two: (i64, i32)) -> Option<Amount> {
    let scaled = |value: i64, by: i32| value.checked_mul(10i64.checked_pow(by as u32)?);
    let (value, scale) = match (one, two) {
        (one, (0, _)) => one,
        ((0, _), two) => two,
        ((a, a_scale), (b, b_scale)) if a_scale == b_scale => (a.checked_add(b)?, a_scale),
        ((a, a_scale), (b, b_scale)) if a_scale > b_scale => {
            (scaled(a, a_scale - b_scale)?.checked_add(b)?, b_scale)
        }
        ((a, a_scale), (b, b_scale)) => (a.checked_add(scaled(b, b_scale - a_scale)?)?, a_scale),
    };
    Some(Amount::Scaled { value, scale })
}
