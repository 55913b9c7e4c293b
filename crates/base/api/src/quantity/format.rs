//! The canonical form, as `CanonicalizeBytes` writes it.

use std::fmt;

use super::{Amount, NANOS, Quantity, QuantityFormat};

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        match self.format {
            // A quantity with a binary suffix fits into 64 bits, and Kubernetes cannot negate the smallest such number.
            QuantityFormat::BinarySi
                if nanos % NANOS == 0
                    && nanos.abs() >= 1024 * NANOS
                    && !matches!(self.amount, Amount::Scaled { value: i64::MIN, scale: 0 }) =>
            {
                binary(nanos / NANOS, formatter)
            }
            QuantityFormat::BinarySi | QuantityFormat::DecimalSi => {
                let (mantissa, exponent) = thousands(self.all_nanos().to_string(), 18);
                let suffix = match exponent {
                    -9 => "n",
                    -6 => "u",
                    -3 => "m",
                    3 => "k",
                    6 => "M",
                    9 => "G",
                    12 => "T",
                    15 => "P",
                    18 => "E",
                    _ => "",
                };
                write!(formatter, "{mantissa}{suffix}")
            }
            QuantityFormat::DecimalExponent => match thousands(self.all_nanos().to_string(), i32::MAX) {
                (mantissa, 0) => write!(formatter, "{mantissa}"),
                (mantissa, exponent) => write!(formatter, "{mantissa}e{exponent}"),
            },
        }
    }
}

fn binary(mut value: i128, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    write!(formatter, "{value}{suffix}")
}

/// The smallest whole mantissa and its power of ten, a multiple of three up to `largest`.
fn thousands(mut nanos: String, largest: i32) -> (String, i32) {
    if nanos == "0" {
        return (nanos, 0);
    }
    let mut exponent = -9;
    while nanos.ends_with("000") && exponent < largest {
        nanos.truncate(nanos.len() - 3);
        exponent += 3;
    }
    (nanos, exponent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_forms() {
        for (text, canonical) in [
            ("81559Mi", "81559Mi"),
            ("1024Mi", "1Gi"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.0001Ki", "102400u"),
            ("0Gi", "0"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1E", "1E"),
            ("1000E", "1000E"),
            ("100e3", "100e3"),
            ("1000e3", "1e6"),
            ("1e0", "1"),
            ("16Ei", "9223372036854775807"),
            ("-2048Ki", "-2Mi"),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), canonical, "{text}");
        }
        assert_eq!(Quantity::binary(85_520_809_984).to_string(), "81559Mi");
        assert_eq!(Quantity::binary(2000).to_string(), "2000");
        assert_eq!(Quantity::bytes(2000).to_string(), "2k");
        assert_eq!(Quantity::bytes(2048).to_string(), "2Ki");
        assert_eq!(Quantity::decimal(132).to_string(), "132");
    }

    proptest! {
        #[test]
        fn what_is_displayed_parses_back(value: i64, binary: bool) {
            let quantity = if binary { Quantity::binary(value) } else { Quantity::decimal(value) };
            let text = quantity.to_string();
            let again: Quantity = text.parse().unwrap();
            // i64::MIN is beyond the cap of binary suffixes, 2^63-1 in magnitude.
            if value != i64::MIN {
                prop_assert_eq!(again, quantity);
            }
        }

        #[test]
        fn bytes_keep_their_text(value in prop_oneof![0i64.., (0..i64::MAX >> 10).prop_map(|kib| kib << 10),
            (0..i64::MAX / 1000).prop_map(|value| value * 1000)])
        {
            let text = Quantity::bytes(value).to_string();
            prop_assert_eq!(text.parse::<Quantity>().unwrap().to_string(), text);
        }

        #[test]
        fn every_spelling_keeps_its_value(
            text in "[-+]?[0-9]{0,20}(\\.[0-9]{0,20})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?"
        ) {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let canonical = quantity.to_string();
                let again: Quantity = canonical.parse().unwrap();
                prop_assert_eq!(&again, &quantity, "{} is written {}", text, canonical);
                // Binary forms without a suffix read as decimal ones.
                if quantity.format() != QuantityFormat::BinarySi {
                    prop_assert_eq!(again.to_string(), canonical);
                }
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Quantity>();
        }
    }
}
