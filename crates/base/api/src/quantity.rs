//! Kubernetes' `Quantity`: a number with a suffix (`k8s.io/apimachinery/pkg/api/resource`).

mod arithmetic;
mod format;
mod parse;

use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};
use serde::{Deserialize, Serialize};

/// Billionths of one.
const NANOS: i128 = 1_000_000_000;

/// Largest accepted decimal exponent, in either direction. Kubernetes accepts any exponent of 32 bits and then
/// computes with numbers of as many digits.
const LARGEST_EXPONENT: i32 = 4_096;

/// Longest text of a quantity, in bytes. Kubernetes has no limit.
const LONGEST: usize = 4_096;

/// A number as Kubernetes writes capacities, counters and the constants of CEL's `quantity()`: exact to a billionth.
///
/// Parses every spelling Kubernetes takes and follows its rounding: parts finer than a billionth are rounded away from
/// zero, and with a binary suffix values above 2⁶³−1 become 2⁶³−1 (so `16Ei` is valid). Displays in Kubernetes'
/// canonical form. Compares by value: `1Gi` equals `1024Mi`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    amount: Amount,
    format: QuantityFormat,
    /// Kubernetes keeps the text of such a quantity, and its `==` also compares the text.
    keeps_text: bool,
}

/// Kubernetes keeps fitting values as `value * 10^scale` and all others as a decimal of any size, and the difference shows:
/// a quantity of the second kind is never an integer to CEL's `asInteger`.
#[derive(Debug, Clone)]
enum Amount {
    Scaled {
        value: i64,
        scale: i32,
    },
    /// `unscaled * 10^-scale`
    Decimal {
        unscaled: Arc<BigInt>,
        scale: i32,
    },
}

/// Which family of suffixes a quantity is displayed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantityFormat {
    /// `Ki`, `Mi`, `Gi`, …: powers of 1024. Values below 1024, and fractions, display as [`Self::DecimalSi`].
    BinarySi,
    /// `m`, none, `k`, `M`, …: powers of 1000.
    DecimalSi,
    /// `e3`, `e6`, …: powers of 1000.
    DecimalExponent,
}

/// Why a text is not a quantity; Kubernetes' texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number before the suffix is not one.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is not one of Kubernetes' (`Ki`, `M`, `e3`, …).
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// More digits or a larger exponent than supported here; Kubernetes would try.
    #[error("quantity has more than 4096 digits")]
    TooLarge,
}

impl Quantity {
    /// A whole number displayed with the suffixes of `format`; Kubernetes' `NewQuantity`.
    #[must_use]
    pub const fn integer(value: i64, format: QuantityFormat) -> Self {
        Self { amount: Amount::Scaled { value, scale: 0 }, format, keeps_text: false }
    }

    /// A whole number displayed with binary suffixes where possible: 85899345920 is `80Gi`.
    #[must_use]
    pub const fn binary(value: i64) -> Self {
        Self::integer(value, QuantityFormat::BinarySi)
    }

    /// A number of bytes whose text an API server gives back unchanged: with binary suffixes for whole KiB, else with
    /// decimal ones (a [`Self::binary`] 2000 displays as `2000`, which a server may turn into `2k`).
    #[must_use]
    pub const fn bytes(value: i64) -> Self {
        if value % 1024 == 0 { Self::binary(value) } else { Self::decimal(value) }
    }

    /// A whole number displayed with decimal suffixes, for counts: 132 is `132`.
    #[must_use]
    pub const fn decimal(value: i64) -> Self {
        Self::integer(value, QuantityFormat::DecimalSi)
    }

    /// A number of thousandths displayed with the suffixes of `format`; Kubernetes' `NewMilliQuantity`.
    #[must_use]
    pub const fn thousandths(value: i64, format: QuantityFormat) -> Self {
        Self { amount: Amount::Scaled { value, scale: -3 }, format, keeps_text: false }
    }

    /// Whether Kubernetes keeps the quantity as a decimal of any size, and not as 64 bits with a power of ten.
    #[must_use]
    pub const fn is_decimal(&self) -> bool {
        matches!(self.amount, Amount::Decimal { .. })
    }

    /// Whether Kubernetes keeps the parsed text, and returns the text in place of the canonical form.
    #[must_use]
    pub const fn keeps_text(&self) -> bool {
        self.keeps_text
    }

    /// The value in billionths, capped at about 1.7 × 10²⁹.
    #[must_use]
    pub fn nanos(&self) -> i128 {
        if let Amount::Scaled { value, scale } = self.amount
            && let Some(power) = scale.checked_add(9).and_then(|power| u32::try_from(power).ok())
            && let Some(nanos) = 10i128.checked_pow(power).and_then(|power| power.checked_mul(value.into()))
        {
            return nanos;
        }
        let nanos = self.all_nanos();
        let largest = if nanos.is_negative() { i128::MIN } else { i128::MAX };
        nanos.to_i128().unwrap_or(largest)
    }

    /// The value in billionths, the finest unit.
    fn all_nanos(&self) -> BigInt {
        let (unscaled, power) = match &self.amount {
            Amount::Scaled { value, scale } => (BigInt::from(*value), scale.saturating_add(9)),
            Amount::Decimal { unscaled, scale } => ((**unscaled).clone(), 9 - scale),
        };
        let factor = BigInt::from(10).pow(power.unsigned_abs());
        if power < 0 { unscaled / factor } else { unscaled * factor }
    }

    /// The suffixes used for display.
    #[must_use]
    pub const fn format(&self) -> QuantityFormat {
        self.format
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i64 {
        match &self.amount {
            Amount::Scaled { value, .. } => value.signum(),
            Amount::Decimal { unscaled, .. } if unscaled.is_zero() => 0,
            Amount::Decimal { unscaled, .. } => {
                if unscaled.is_negative() {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// The value if it is a whole number within 64 bits, however written.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        let nanos = self.nanos();
        (nanos % NANOS == 0).then(|| i64::try_from(nanos / NANOS).ok()).flatten()
    }

    /// The value as an integer, where Kubernetes' `AsInt64` gives one: not for anything parsed with a fraction or a
    /// milli, micro or nano suffix, even if the value is whole.
    #[must_use]
    pub fn as_int64(&self) -> Option<i64> {
        match &self.amount {
            Amount::Scaled { value, scale: 0 } => Some(*value),
            Amount::Scaled { value, scale } if *scale > 0 => match 10i64.checked_pow(scale.unsigned_abs()) {
                Some(factor) => value.checked_mul(factor),
                None => (*value == 0).then_some(0),
            },
            _ => None,
        }
    }

    /// Whether Kubernetes' `==` holds for the two quantities, written as these texts: same value and unit, and same text
    /// where the text is kept. Decimals of any size are compared by address, so they are never the same.
    #[must_use]
    pub fn is_same_struct(&self, text: &str, other: &Self, other_text: &str) -> bool {
        let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.amount, &other.amount)
        else {
            return false;
        };
        (value, scale, self.format, self.keeps_text)
            == (other_value, other_scale, other.format, other.keeps_text)
            && (!self.keeps_text || text == other_text)
    }

    /// The value as Kubernetes keeps it, for messages.
    #[must_use]
    pub fn plain(&self) -> String {
        match &self.amount {
            Amount::Scaled { value, scale: 0 } => value.to_string(),
            Amount::Scaled { value, scale } => format!("{value}e{scale}"),
            Amount::Decimal { unscaled, scale } => format!("{unscaled}e{}", -scale),
        }
    }
}

impl TryFrom<String> for Quantity {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> Self {
        quantity.to_string()
    }
}
