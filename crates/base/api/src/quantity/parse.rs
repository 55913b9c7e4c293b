//! Quantities from text, as `resource.ParseQuantity` reads them.

use std::cmp::Ordering;
use std::str::FromStr;
use std::sync::Arc;

use num_bigint::BigInt;
use num_traits::{Signed as _, Zero as _};

use super::{Amount, LARGEST_EXPONENT, LONGEST, Quantity, QuantityError, QuantityFormat};

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Quantity::parse(text)
    }
}

impl Quantity {
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
        if text == "0" {
            return Ok(Quantity { keeps_text: true, ..Quantity::decimal(0) });
        }
        let parts = split(text)?;
        let suffix = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        match parts.as_scaled(&suffix)? {
            Some(small) => Ok(small),
            None => parts.as_decimal(&suffix),
        }
    }
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
    format: QuantityFormat,
    exponent: i32,
}

impl Suffix {
    fn is_binary(&self) -> bool {
        self.format == QuantityFormat::BinarySi
    }
}

fn suffix(text: &str) -> Option<Suffix> {
    let decimal = |exponent| Some(Suffix { format: QuantityFormat::DecimalSi, exponent });
    let binary = |exponent| Some(Suffix { format: QuantityFormat::BinarySi, exponent });
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
            // Kubernetes keeps the lowest 32 bits.
            Some(Suffix { format: QuantityFormat::DecimalExponent, exponent: exponent as i32 })
        }
    }
}

impl Parts<'_> {
    /// The fast form, where Kubernetes uses it.
    fn as_scaled(&self, suffix: &Suffix) -> Result<Option<Quantity>, QuantityError> {
        let digits = (self.whole.len() + self.fraction.len()) as i32;
        let (precision, scale, factor) = if suffix.is_binary() {
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
        let digits = format!("{}{}", self.whole, self.fraction);
        let number: i64 = digits.parse().map_err(|_| QuantityError::Number)?;
        let Some(value) = number.checked_mul(factor) else { return Ok(None) };
        let keeps_text = if suffix.is_binary() {
            number & 7 != 0
        } else {
            scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
        };
        // Kubernetes keeps the scale in 32 bits but computes with it in loops; no real quantity comes near.
        if scale > LARGEST_EXPONENT && value != 0 {
            return Err(QuantityError::TooLarge);
        }
        let scale = scale.min(LARGEST_EXPONENT);
        let amount = Amount::Scaled { value: if self.negative { -value } else { value }, scale };
        Ok(Some(Quantity { amount, format: suffix.format, keeps_text }))
    }

    fn as_decimal(&self, suffix: &Suffix) -> Result<Quantity, QuantityError> {
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
        if suffix.is_binary() {
            unscaled <<= suffix.exponent as usize;
        } else {
            scale -= suffix.exponent;
        }
        if !unscaled.is_zero() {
            (unscaled, scale) = round_up_to_nano(unscaled, scale);
        }
        if suffix.is_binary() {
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
        let mut format = suffix.format;
        let is_below_one = || unscaled < BigInt::from(10).pow(scale.unsigned_abs());
        if suffix.is_binary() && scale > 0 && !unscaled.is_zero() && is_below_one() {
            format = QuantityFormat::DecimalSi;
        }
        if self.negative {
            unscaled = -unscaled;
        }
        let amount = Amount::Decimal { unscaled: Arc::new(unscaled), scale };
        Ok(Quantity { amount, format, keeps_text: false })
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

#[cfg(test)]
mod tests {
    use super::super::NANOS;
    use super::*;

    #[track_caller]
    fn nanos(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap().nanos()
    }

    #[test]
    fn suffixes() {
        assert_eq!(nanos("1"), NANOS);
        assert_eq!(nanos("1.5"), 1_500_000_000);
        assert_eq!(nanos("100m"), 100_000_000);
        assert_eq!(nanos("7n"), 7);
        assert_eq!(nanos("1E"), 10i128.pow(27));
        assert_eq!(nanos("1e3"), 1000 * NANOS);
        assert_eq!(nanos("1E3"), 1000 * NANOS);
        assert_eq!(nanos("5e-1"), 500_000_000);
        assert_eq!(nanos("40Gi"), 40 * (1 << 30) * NANOS);
        assert_eq!(nanos("-1Ki"), -1024 * NANOS);
        assert_eq!(nanos("+1."), NANOS);
        assert_eq!(nanos(".5Ki"), 512 * NANOS);
        assert_eq!(nanos("0e2147483647"), 0);
        for text in ["-", ".", "m", "Ki", "e3"] {
            assert_eq!(nanos(text), 0, "{text}");
        }
    }

    #[test]
    fn rounding_and_caps() {
        assert_eq!(nanos("16Ei"), i128::from(i64::MAX) * NANOS);
        assert_eq!(nanos("99999999999999999999999999999999999999999Ki"), i128::from(i64::MAX) * NANOS);
        assert_eq!(nanos("-16Ei"), i128::from(i64::MAX) * -NANOS);
        assert_eq!(nanos("0.1n"), 1);
        assert_eq!(nanos("-0.1n"), -1);
        assert_eq!(nanos("1e-400"), 1);
        assert_eq!(nanos("1.0000000001"), NANOS + 1);
        assert_eq!(nanos("1.0000000000"), NANOS);
        assert_eq!(nanos("0.33333333333333333333333333333333333333333333Gi"), 357_913_941_333_333_334);
    }

    #[test]
    fn what_is_no_quantity() {
        assert_eq!("".parse::<Quantity>(), Err(QuantityError::Format));
        for text in [
            "x", "1 Gi", "1gi", "1KI", "1K", "1i", "1e", "1ee3", "1e3.5", "0x10", "1_0", "1.1.M", "-3.01e-",
            "١",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        for text in ["1e4097", "1e2147483647", &"9".repeat(5000)] {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError::TooLarge), "{text:?}");
        }
        for (text, canonical) in [
            ("1e30", "1e30"),
            ("99999999999999999E", "99999999999999999E"),
            (
                "9999999999999999999999999999999999999999999999",
                "9999999999999999999999999999999999999999999999",
            ),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical, "{text:?}");
        }
    }
}
