//! Kubernetes quantities (`40Gi`, `1500m`), compared and added as apimachinery's `resource.Quantity` does.

use std::cmp::Ordering;
use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

/// Largest decimal exponent that is accepted, in either direction. Upstream accepts any that fits 32 bits and then
/// computes with numbers of that many digits.
const LARGEST_EXPONENT: i32 = 4_096;

/// Longest text of a quantity, in bytes. Upstream has no limit.
const LONGEST: usize = 4_096;

/// Why a text is not a quantity; upstream's texts.
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
    /// More digits or a larger exponent than this library computes with; Kubernetes would try.
    #[error("quantity has more than 4096 digits")]
    TooLarge,
}

/// A quantity. Its suffix is not kept: no function of the CEL environment shows it.
#[derive(Debug, Clone)]
pub struct Quantity(Amount);

/// Upstream keeps what fits as `value * 10^scale` and all else as a decimal of any size, and the difference shows:
/// a quantity of the second kind is never an integer to `asInteger`.
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

impl Quantity {
    /// The integer `value`.
    pub const fn from_integer(value: i64) -> Self {
        Quantity(Amount::Scaled { value, scale: 0 })
    }

    /// Parses a quantity as `resource.ParseQuantity` does.
    ///
    /// # Errors
    /// The text is not a quantity, see [`QuantityError`].
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        if text.len() > LONGEST {
            return Err(QuantityError::TooLarge);
        }
        let parts = split(text)?;
        let suffix = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Some(small) = parts.as_scaled(&suffix)? {
            return Ok(Quantity(small));
        }
        parts.as_decimal(&suffix).map(Quantity)
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i64 {
        match &self.0 {
            Amount::Scaled { value, .. } => value.signum(),
            Amount::Decimal { unscaled, .. } => match unscaled.sign() {
                num_bigint::Sign::Minus => -1,
                num_bigint::Sign::NoSign => 0,
                num_bigint::Sign::Plus => 1,
            },
        }
    }

    /// The value as an integer, where upstream's `AsInt64` gives one: not for anything parsed with a fraction or a
    /// milli, micro or nano suffix, even if the value is whole.
    pub fn as_integer(&self) -> Option<i64> {
        match &self.0 {
            Amount::Scaled { value, scale: 0 } => Some(*value),
            Amount::Scaled { value, scale } if *scale > 0 => {
                let factor = 10i64.checked_pow(*scale as u32);
                match factor {
                    Some(factor) => value.checked_mul(factor),
                    None => (*value == 0).then_some(0),
                }
            }
            _ => None,
        }
    }

    /// The nearest double, computed as upstream computes it.
    pub fn as_approximate_float(&self) -> f64 {
        let (base, exponent) = match &self.0 {
            Amount::Scaled { value, scale } => (*value as f64, *scale),
            Amount::Decimal { unscaled, scale } => (unscaled.to_f64().unwrap_or(f64::INFINITY), -scale),
        };
        if exponent == 0 { base } else { base * power_of_ten(exponent) }
    }

    /// The sum.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        if let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.0, &other.0)
            && let Some(sum) = add_scaled((*value, *scale), (*other_value, *other_scale))
        {
            return Quantity(sum);
        }
        self.add_decimals(other, false)
    }

    /// The difference.
    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        if let (Amount::Scaled { value, scale }, Amount::Scaled { value: other_value, scale: other_scale }) =
            (&self.0, &other.0)
            && let Some(difference) = add_scaled((*value, *scale), (other_value.wrapping_neg(), *other_scale))
        {
            return Quantity(difference);
        }
        self.add_decimals(other, true)
    }

    fn add_decimals(&self, other: &Self, negate: bool) -> Self {
        let ((mut one, mut one_scale), (mut two, two_scale)) = (self.decimal(), other.decimal());
        match one_scale.cmp(&two_scale) {
            Ordering::Less => {
                one *= BigInt::from(10).pow((two_scale - one_scale) as u32);
                one_scale = two_scale;
            }
            Ordering::Greater => two *= BigInt::from(10).pow((one_scale - two_scale) as u32),
            Ordering::Equal => {}
        }
        let unscaled = Arc::new(if negate { one - two } else { one + two });
        Quantity(Amount::Decimal { unscaled, scale: one_scale })
    }

    fn decimal(&self) -> (BigInt, i32) {
        match &self.0 {
            Amount::Scaled { value, scale } => (BigInt::from(*value), -scale),
            Amount::Decimal { unscaled, scale } => ((**unscaled).clone(), *scale),
        }
    }

    /// The value in apimachinery's canonical plain digits, for messages.
    pub(crate) fn plain(&self) -> String {
        match &self.0 {
            Amount::Scaled { value, scale: 0 } => value.to_string(),
            Amount::Scaled { value, scale } => format!("{value}e{scale}"),
            Amount::Decimal { unscaled, scale } => format!("{unscaled}e{}", -scale),
        }
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
            (&self.0, &other.0)
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

/// The parts of a quantity's text.
struct Parts<'t> {
    negative: bool,
    /// Sign, digits and point.
    number: &'t str,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let bytes = text.as_bytes();
    let negative = bytes[0] == b'-';
    let mut at = usize::from(matches!(bytes[0], b'-' | b'+'));
    at += bytes[at..].iter().take_while(|byte| **byte == b'0').count();
    if at == bytes.len() {
        return Ok(Parts { negative, number: "0", whole: "0", fraction: "", suffix: "" });
    }
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole_end = at + digits(at);
    let mut whole = &text[at..whole_end];
    if whole.is_empty() {
        whole = "0";
    }
    let mut end = whole_end;
    let mut fraction = "";
    if bytes.get(end) == Some(&b'.') {
        let fraction_end = end + 1 + digits(end + 1);
        fraction = &text[end + 1..fraction_end];
        end = fraction_end;
    }
    let suffix_letters = bytes[end..].iter().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let mut suffix_end = end + suffix_letters;
    suffix_end += usize::from(matches!(bytes.get(suffix_end), Some(b'-' | b'+')));
    suffix_end += digits(suffix_end);
    if suffix_end != bytes.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, number: &text[..end], whole, fraction, suffix: &text[end..] })
}

struct Suffix {
    binary: bool,
    exponent: i32,
}

fn suffix(text: &str) -> Option<Suffix> {
    let decimal = |exponent| Some(Suffix { binary: false, exponent });
    let binary = |exponent| Some(Suffix { binary: true, exponent });
    match text {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            let exponent: i64 = exponent.parse().ok()?;
            // Upstream keeps the lowest 32 bits.
            decimal(exponent as i32)
        }
    }
}

impl Parts<'_> {
    /// The fast form, where upstream uses it.
    fn as_scaled(&self, suffix: &Suffix) -> Result<Option<Amount>, QuantityError> {
        let digits = (self.whole.len() + self.fraction.len()) as i32;
        let (precision, scale, factor) = if suffix.binary {
            if self.fraction.is_empty() {
                let precision =
                    15 - self.whole.len() as i32 - (suffix.exponent as f32 * 3.0 / 10.0) as i32 - 1;
                (precision, 0, 1i64.checked_shl(suffix.exponent as u32).unwrap_or(0))
            } else {
                (-1, 0, 1)
            }
        } else {
            (18 - digits, suffix.exponent, 1)
        };
        if precision < 0 {
            return Ok(None);
        }
        let scale = scale.saturating_sub(self.fraction.len() as i32);
        if scale < -9 {
            return Ok(None);
        }
        let value: i64 =
            format!("{}{}", self.whole, self.fraction).parse().map_err(|_| QuantityError::Number)?;
        let Some(value) = value.checked_mul(factor) else { return Ok(None) };
        // Upstream keeps the scale in 32 bits but computes with it in loops; no real quantity comes near.
        if scale > LARGEST_EXPONENT {
            return Err(QuantityError::TooLarge);
        }
        Ok(Some(Amount::Scaled { value: if self.negative { -value } else { value }, scale }))
    }

    fn as_decimal(&self, suffix: &Suffix) -> Result<Amount, QuantityError> {
        // A number such as "." or "+" has no digits.
        if !self.number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Number);
        }
        if suffix.exponent.unsigned_abs() > LARGEST_EXPONENT as u32 {
            return Err(QuantityError::TooLarge);
        }
        let mut unscaled: BigInt =
            format!("{}{}", self.whole, self.fraction).parse().map_err(|_| QuantityError::Number)?;
        let mut scale = self.fraction.len() as i32;
        if suffix.binary {
            unscaled <<= suffix.exponent as usize;
        } else {
            scale -= suffix.exponent;
        }
        if !unscaled.is_zero() {
            (unscaled, scale) = round_up_to_nano(unscaled, scale);
        }
        if suffix.binary {
            // Only quantities with a binary suffix are capped, at the largest 64-bit integer.
            let largest = BigInt::from(i64::MAX);
            let compared = if scale >= 0 {
                unscaled.cmp(&(&largest * BigInt::from(10).pow(scale as u32)))
            } else {
                (&unscaled * BigInt::from(10).pow(scale.unsigned_abs())).cmp(&largest)
            };
            if compared == Ordering::Greater {
                (unscaled, scale) = (largest, 0);
            }
        }
        if self.negative {
            unscaled = -unscaled;
        }
        Ok(Amount::Decimal { unscaled: Arc::new(unscaled), scale })
    }
}

/// `unscaled * 10^-scale` with nine decimals, rounded away from zero.
fn round_up_to_nano(unscaled: BigInt, scale: i32) -> (BigInt, i32) {
    if scale <= 9 {
        return (unscaled * BigInt::from(10).pow((9 - scale) as u32), 9);
    }
    let divisor = BigInt::from(10).pow((scale - 9) as u32);
    let quotient = &unscaled / &divisor;
    let exact = (&quotient * &divisor) == unscaled;
    let rounded = if exact { quotient } else { quotient + if unscaled.is_negative() { -1 } else { 1 } };
    (rounded, 9)
}
