//! Amounts of capacities and counters: exact, small and fast to add.

use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};
use tessera_cel::{Quantity, QuantityError};

/// Billionths of a unit, as Kubernetes quantities have no finer ones.
pub type Nanos = i128;

const NANO: Nanos = 1_000_000_000;

/// Beyond this (10^28 units, in billionths) amounts are cut, so that adding up cannot overflow.
const LARGEST: Nanos = 10i128.pow(37);

/// How upstream stores a quantity: it compares a policy's default by this, not by value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stored {
    value: i64,
    scale: i32,
    format: Format,
    text: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// An amount of a capacity or a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Amount {
    nanos: Nanos,
    text: Arc<str>,
    /// None for what upstream keeps as a decimal of any size: two of these are never the same to it.
    stored: Option<Stored>,
}

impl Amount {
    /// Reads a quantity such as `40Gi` or `1500m`.
    ///
    /// # Errors
    /// The text is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        // Accepts and refuses what Kubernetes does.
        Quantity::parse(text)?;
        let text: Arc<str> = Arc::from(text);
        if &*text == "0" {
            let stored =
                Stored { value: 0, scale: 0, format: Format::Decimal, text: Some(Arc::clone(&text)) };
            return Ok(Amount { nanos: 0, text, stored: Some(stored) });
        }
        let parts = Parts::of(&text);
        let (nanos, stored) = (parts.nanos(), parts.stored(&text));
        Ok(Amount { nanos, text, stored })
    }

    /// What upstream computes as a whole number of units: `resource.NewQuantity(units, BinarySI)`.
    pub(crate) fn from_units(units: i64) -> Self {
        let mut suffix = 0;
        let mut shown = units;
        while shown != 0 && shown % 1024 == 0 && suffix < 6 {
            shown /= 1024;
            suffix += 1;
        }
        let text = Arc::from(format!("{shown}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][suffix]));
        let stored = Some(Stored { value: units, scale: 0, format: Format::Binary, text: None });
        Amount { nanos: Nanos::from(units) * NANO, text, stored }
    }

    /// The amount in billionths of a unit, cut at 10^28 units.
    pub fn nanos(&self) -> Nanos {
        self.nanos
    }

    /// The amount as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether upstream's `==` on the two holds: same value, unit and, in canonical form, same text.
    pub(crate) fn same_struct(&self, other: &Self) -> bool {
        self.stored.is_some() && self.stored == other.stored
    }

    /// The amount in whole units, rounded away from zero, as upstream's `Value`.
    pub(crate) fn units(&self) -> i64 {
        let (whole, rest) = (self.nanos / NANO, self.nanos % NANO);
        let rounded = whole + if rest == 0 { 0 } else { self.nanos.signum() };
        rounded.clamp(Nanos::from(i64::MIN), Nanos::from(i64::MAX)) as i64
    }
}

/// Writes billionths of a unit as a quantity, with a binary suffix where it is whole.
pub fn show(nanos: Nanos) -> String {
    if nanos % NANO == 0
        && let Ok(units) = i64::try_from(nanos / NANO)
    {
        return Amount::from_units(units).text().to_owned();
    }
    for (suffix, size) in [("m", 1_000_000), ("u", 1_000)] {
        if nanos % size == 0 {
            return format!("{}{suffix}", nanos / size);
        }
    }
    format!("{nanos}n")
}

struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    binary: bool,
    format: Format,
    exponent: i32,
}

impl<'t> Parts<'t> {
    /// Takes apart a text that is known to be a quantity.
    fn of(text: &'t str) -> Self {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let whole = if whole.is_empty() { "0" } else { whole };
        let (format, exponent) = match suffix {
            "" => (Format::Decimal, 0),
            "n" => (Format::Decimal, -9),
            "u" => (Format::Decimal, -6),
            "m" => (Format::Decimal, -3),
            "k" => (Format::Decimal, 3),
            "M" => (Format::Decimal, 6),
            "G" => (Format::Decimal, 9),
            "T" => (Format::Decimal, 12),
            "P" => (Format::Decimal, 15),
            "E" => (Format::Decimal, 18),
            "Ki" => (Format::Binary, 10),
            "Mi" => (Format::Binary, 20),
            "Gi" => (Format::Binary, 30),
            "Ti" => (Format::Binary, 40),
            "Pi" => (Format::Binary, 50),
            "Ei" => (Format::Binary, 60),
            other => {
                // Upstream keeps the lowest 32 bits.
                let exponent: i64 = other.trim_start_matches(['e', 'E']).parse().unwrap_or(0);
                (Format::Exponent, exponent as i32)
            }
        };
        Parts { negative, whole, fraction, binary: format == Format::Binary, format, exponent }
    }

    fn nanos(&self) -> Nanos {
        let digits = format!("{}{}", self.whole, self.fraction);
        let power = 9 - self.fraction.len() as i32 + if self.binary { 0 } else { self.exponent };
        let factor = if self.binary { 1i128 << self.exponent } else { 1 };
        let magnitude = digits
            .parse::<Nanos>()
            .ok()
            .and_then(|digits| digits.checked_mul(factor))
            .and_then(|value| match u32::try_from(power) {
                Ok(power) => value.checked_mul(10i128.checked_pow(power)?),
                Err(_) => {
                    let divisor = 10i128.checked_pow(power.unsigned_abs())?;
                    Some(value / divisor + Nanos::from(value % divisor != 0))
                }
            })
            .unwrap_or_else(|| self.large_nanos(&digits, factor, power));
        let capped =
            if self.binary { magnitude.min(Nanos::from(i64::MAX) * NANO) } else { magnitude.min(LARGEST) };
        if self.negative { -capped } else { capped }
    }

    fn large_nanos(&self, digits: &str, factor: Nanos, power: i32) -> Nanos {
        let mut value: BigInt = digits.parse().unwrap_or_default();
        value *= factor;
        let ten = BigInt::from(10);
        if power >= 0 {
            value *= ten.pow(power.unsigned_abs());
        } else {
            let divisor = ten.pow(power.unsigned_abs());
            let rest = &value % &divisor;
            value /= divisor;
            if !rest.is_zero() {
                value += 1;
            }
        }
        value.abs().to_i128().unwrap_or(LARGEST).min(LARGEST)
    }

    /// Upstream's fast form, where it uses it.
    fn stored(&self, text: &Arc<str>) -> Option<Stored> {
        let digits = (self.whole.len() + self.fraction.len()) as i32;
        let (precision, scale, mantissa) = match self.format {
            Format::Decimal | Format::Exponent => (18 - digits, self.exponent, 1),
            Format::Binary if self.fraction.is_empty() => {
                let precision = 15 - self.whole.len() as i32 - (self.exponent as f32 * 3.0 / 10.0) as i32 - 1;
                (precision, 0, 1i64 << self.exponent)
            }
            Format::Binary => return None,
        };
        let scale = scale.saturating_sub(self.fraction.len() as i32);
        if precision < 0 || scale < -9 {
            return None;
        }
        let shifted = format!("{}{}", self.whole, self.fraction);
        let value: i64 = shifted.parse().ok()?;
        let magnitude = value.checked_mul(mantissa)?;
        let canonical = match self.format {
            Format::Binary => value & 7 != 0,
            _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
        };
        Some(Stored {
            value: if self.negative { -magnitude } else { magnitude },
            scale,
            format: self.format,
            text: canonical.then(|| Arc::clone(text)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, show};

    fn nanos(text: &str) -> i128 {
        Amount::parse(text).expect("a quantity").nanos()
    }

    #[test]
    fn values() {
        assert_eq!(nanos("1"), 1_000_000_000);
        assert_eq!(nanos("1500m"), 1_500_000_000);
        assert_eq!(nanos("0.5Ki"), 512_000_000_000);
        assert_eq!(nanos("-2k"), -2_000_000_000_000);
        assert_eq!(nanos("1e3"), nanos("1k"));
        assert_eq!(nanos("0.0000000001"), 1);
        assert_eq!(nanos("9Ei"), i128::from(i64::MAX) * 1_000_000_000);
        assert_eq!(nanos("1e40"), 10i128.pow(37));
    }

    #[test]
    fn units_round_away_from_zero() {
        let units = |text: &str| Amount::parse(text).expect("a quantity").units();
        assert_eq!((units("1m"), units("-1m"), units("2")), (1, -1, 2));
    }

    #[test]
    fn sameness_is_of_the_text() {
        let same = |one: &str, two: &str| {
            Amount::parse(one).expect("one").same_struct(&Amount::parse(two).expect("two"))
        };
        assert!(same("1Gi", "1Gi"));
        assert!(!same("1Gi", "1024Mi"));
        assert!(same("8Gi", "8192Mi"), "neither keeps its text");
        assert!(!same("1.5Gi", "1.5Gi"), "decimals are compared by address");
    }

    #[test]
    fn shown() {
        for text in ["40Gi", "0", "1500m", "7", "-1Ki", "3n"] {
            assert_eq!(show(nanos(text)), text);
        }
    }
}
