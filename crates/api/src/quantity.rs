//! Kubernetes' `Quantity`: a number with a suffix (`k8s.io/apimachinery/pkg/api/resource`).

mod format;
mod parse;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

const NANOS: i128 = 1_000_000_000;

/// A number as Kubernetes writes capacities, counters and the constants of CEL's `quantity()`: exact to a billionth.
///
/// Parses every spelling Kubernetes takes and follows its rounding: what is finer than a billionth is rounded away from
/// zero, and with a binary suffix what is above 2⁶³−1 becomes 2⁶³−1 (so `16Ei` is valid). Displays in Kubernetes'
/// canonical form. Compares by value: `1Gi` equals `1024Mi`.
///
/// Magnitudes above about 1.7 × 10²⁹, which Kubernetes takes without a binary suffix, are an error here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    nanos: i128,
    format: QuantityFormat,
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

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// The text is empty.
    #[error(
        "an empty text is not a quantity: expected a number and perhaps a suffix, as in 40Gi, 1.5 or 100m"
    )]
    Empty,
    /// The number is followed by something other than a suffix.
    #[error(
        "{0:?} is not a quantity: expected a number and perhaps one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi \
         Ei, e<number>"
    )]
    Form(String),
    /// The magnitude is above what this implementation holds (about 1.7 × 10²⁹), without a binary suffix.
    #[error("{0:?} is too large for a quantity here: the limit is about 1.7e29")]
    Range(String),
}

impl Quantity {
    /// A whole number that displays with binary suffixes where it can: 85899345920 is `80Gi`.
    #[must_use]
    pub const fn binary(value: i64) -> Self {
        Self { nanos: value as i128 * NANOS, format: QuantityFormat::BinarySi }
    }

    /// A number of bytes whose text an API server gives back unchanged: with binary suffixes for whole KiB, else with
    /// decimal ones (a [`Self::binary`] 2000 displays as `2000`, which a server may turn into `2k`).
    #[must_use]
    pub const fn bytes(value: i64) -> Self {
        if value % 1024 == 0 { Self::binary(value) } else { Self::decimal(value) }
    }

    /// A whole number that displays with decimal suffixes, for counts: 132 is `132`.
    #[must_use]
    pub const fn decimal(value: i64) -> Self {
        Self { nanos: value as i128 * NANOS, format: QuantityFormat::DecimalSi }
    }

    /// The value in billionths.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The suffixes it displays with.
    #[must_use]
    pub const fn format(self) -> QuantityFormat {
        self.format
    }

    /// The value where it is a whole number within 64 bits (Go's `AsInt64`).
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        (self.nanos % NANOS == 0).then(|| i64::try_from(self.nanos / NANOS).ok()).flatten()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
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
