use std::str::FromStr;

use super::{NANOS, Quantity, QuantityError, QuantityFormat};

/// The largest magnitude with a binary suffix, 2^63-1.
const MAX_BINARY: i128 = i64::MAX as i128 * NANOS;

/// What a suffix multiplies by: 10^`ten` × 2^`two`.
struct Suffix {
    ten: i64,
    two: u32,
    format: QuantityFormat,
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let excerpt = || text.chars().take(64).collect::<String>();
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = leading_digits(unsigned);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => leading_digits(rest),
            None => ("", rest),
        };
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let suffix = Suffix::parse(rest).ok_or_else(|| QuantityError::Form(excerpt()))?;
        // Kubernetes takes a suffix alone for zero of it, but not where it computes with big numbers.
        if whole.is_empty() && fraction.is_empty() && (suffix.two > 40 || suffix.ten < -9) {
            return Err(QuantityError::Form(excerpt()));
        }
        let magnitude = magnitude(whole, fraction, &suffix);

        let mut format = suffix.format;
        let nanos = if format == QuantityFormat::BinarySi {
            let nanos = magnitude.unwrap_or(MAX_BINARY).min(MAX_BINARY);
            if (1..NANOS).contains(&nanos) {
                format = QuantityFormat::DecimalSi;
            }
            nanos
        } else {
            magnitude.ok_or_else(|| QuantityError::Range(excerpt()))?
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let decimal = |ten| Some(Self { ten, two: 0, format: QuantityFormat::DecimalSi });
        let binary = |two| Some(Self { ten: 0, two, format: QuantityFormat::BinarySi });
        match text {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
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
                let ten = i64::from(exponent.parse::<i32>().ok()?);
                Some(Self { ten, two: 0, format: QuantityFormat::DecimalExponent })
            }
        }
    }
}

/// The text's leading decimal digits, and what follows.
fn leading_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `whole.fraction` × `suffix` in billionths, rounded up; `None` where that does not fit.
fn magnitude(whole: &str, fraction: &str, suffix: &Suffix) -> Option<i128> {
    let digits = || whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
    if digits().all(|digit| digit == 0) {
        return Some(0);
    }
    // The power of ten moves the decimal point; a point outside the digits means zeros between it and them.
    let point = i64::try_from(whole.len()).ok()?.checked_add(suffix.ten)?;
    let factor = NANOS << suffix.two;

    let mut integer: i128 = 0;
    let before_point = usize::try_from(point).unwrap_or(0);
    for digit in digits().take(before_point) {
        integer = integer.checked_mul(10)?.checked_add(digit)?;
    }
    if integer != 0 {
        for _ in whole.len() + fraction.len()..before_point {
            integer = integer.checked_mul(10)?;
        }
    }
    let integer = integer.checked_mul(factor)?;

    // Long multiplication of the fraction from its last digit: the carry out of its first digit is the whole part of
    // the product, and any digit left of it rounds up.
    let mut carry: i128 = 0;
    let mut remainder = false;
    let after_point: Vec<i128> = digits().skip(before_point).collect();
    for digit in after_point.into_iter().rev() {
        let product = digit * factor + carry;
        remainder |= product % 10 != 0;
        carry = product / 10;
    }
    for _ in point..0 {
        if carry == 0 {
            break;
        }
        remainder |= carry % 10 != 0;
        carry /= 10;
    }
    integer.checked_add(carry)?.checked_add(i128::from(remainder))
}

#[cfg(test)]
mod tests {
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
        assert_eq!("".parse::<Quantity>(), Err(QuantityError::Empty));
        for text in [
            "x", "1 Gi", "1gi", "1KI", "1K", "1i", "1e", "1ee3", "1e3.5", "0x10", "1_0", "1.1.M", "-3.01e-",
            "١",
        ] {
            assert!(matches!(text.parse::<Quantity>(), Err(QuantityError::Form(_))), "{text:?}");
        }
        for text in
            ["1e30", "1e2147483647", "9999999999999999999999999999999999999999999999", "99999999999999999E"]
        {
            assert!(matches!(text.parse::<Quantity>(), Err(QuantityError::Range(_))), "{text:?}");
        }
    }
}
