use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::form::NOT_MEMORY;
use crate::quantity::Quantity;

const NANOS: i128 = 1_000_000_000;
const MIB: i128 = 1 << 20;
/// Any larger quantity is 1Mi or more: parts of a byte count as a byte.
const TOO_LITTLE: i64 = (1 << 20) - 1;
/// Longest limit in characters; longer texts are not amounts of memory.
const CHARACTERS: usize = 32;

/// A memory limit as users write it: a quantity of at least 1Mi, rounded down to whole MiB as NVIDIA's driver does,
/// because MPS takes only whole MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    /// MiB, 1 or more.
    pub mib: u64,
}

struct MemoryLimitVisitor;

impl<'de> Deserialize<'de> for MemoryLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemoryLimitVisitor)
    }
}

impl Visitor<'_> for MemoryLimitVisitor {
    type Value = MemoryLimit;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an amount of memory of 1Mi or more, such as 10Gi")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MemoryLimit, E> {
        let quantity: Quantity = text.parse().map_err(|_| E::custom(NOT_MEMORY))?;
        let bytes = quantity.nanos().div_euclid(NANOS) + i128::from(quantity.nanos().rem_euclid(NANOS) > 0);
        // The upper bound of Kubernetes' own quantities.
        let mib = bytes.min(i64::MAX.into()) / MIB;
        match u64::try_from(mib) {
            Ok(mib) if mib > 0 => Ok(MemoryLimit { mib }),
            _ => Err(E::custom(NOT_MEMORY)),
        }
    }

    // YAML without quotation marks: Kubernetes takes bare numbers for quantities too.
    fn visit_u64<E: Error>(self, number: u64) -> Result<MemoryLimit, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<MemoryLimit, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<MemoryLimit, E> {
        self.visit_str(&number.to_string())
    }
}

/// Whether a value is a valid limit.
pub(super) fn is_right(value: &Value) -> bool {
    match value {
        Value::String(text) => is_short(text) && MemoryLimit::deserialize(value).is_ok(),
        Value::Number(number) => number.as_f64().is_some_and(|number| number > TOO_LITTLE as f64),
        _ => false,
    }
}

/// Whether an amount is short, with at most two digits in the exponent. All parsers agree on such amounts.
fn is_short(text: &str) -> bool {
    let digits =
        |rest: &str| rest.trim_start_matches(['+', '-']).chars().take_while(char::is_ascii_digit).count();
    text.chars().count() <= CHARACTERS && text.split(['e', 'E']).skip(1).all(|rest| digits(rest) <= 2)
}

/// The negation of [`is_right`] for `limit`, as an expression of Kubernetes' CEL.
pub(super) fn is_wrong_in_cel() -> String {
    format!(
        "type(limit) == string ? limit.size() > {CHARACTERS} || limit.matches(\"[eE][+-]*[0-9]{{3}}\") || \
         !isQuantity(limit) ||\n      !quantity(limit).isGreaterThan(quantity(\"{TOO_LITTLE}\")) :\n      \
         type(limit) == int || type(limit) == double ? limit <= {TOO_LITTLE} : true"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_mebibytes() {
        let mib = |value: Value| MemoryLimit::deserialize(value).map(|limit| limit.mib);
        for (value, expected) in [
            (json!("10Gi"), 10_240),
            (json!("1Mi"), 1),
            (json!("1.9Mi"), 1),
            (json!("1048575.5"), 1),
            (json!(10_737_418_240_u64), 10_240),
            (json!(1.5e9), 1430),
            (json!("16Ei"), (1 << 43) - 1),
            (json!("1e30"), (1 << 43) - 1),
        ] {
            assert_eq!(mib(value.clone()).unwrap(), expected, "{value}");
            assert!(is_right(&value), "{value}");
        }
        for value in [
            json!("0"),
            json!("1023Ki"),
            json!("-5Gi"),
            json!(0),
            json!(-1),
            json!("ten"),
            json!(""),
            json!(true),
        ] {
            assert!(mib(value.clone()).is_err() && !is_right(&value), "{value}");
        }
        for value in [json!("1e100"), json!("1e+999999999"), json!("1".repeat(33))] {
            assert!(!is_right(&value), "{value}");
        }
    }
}
