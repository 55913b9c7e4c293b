use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use crate::quantity::Quantity;

const NANOS: i128 = 1_000_000_000;
const MIB: i128 = 1 << 20;

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
        let quantity: Quantity = text.parse().map_err(|_| {
            let text: String = text.chars().take(64).collect();
            E::custom(format!(
                "{text:?} is not a quantity: expected a number and perhaps one of the suffixes n u m k M G T P E, Ki Mi Gi \
                 Ti Pi Ei, e<number>"
            ))
        })?;
        let bytes = quantity.nanos().div_euclid(NANOS) + i128::from(quantity.nanos().rem_euclid(NANOS) > 0);
        match u64::try_from(bytes / MIB) {
            Ok(mib) if mib > 0 => Ok(MemoryLimit { mib }),
            _ => {
                let text: String = text.chars().take(64).collect();
                Err(E::custom(format!("{text} is no limit on memory: 1Mi or more")))
            }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        ] {
            assert_eq!(mib(value.clone()).unwrap(), expected, "{value}");
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
            assert!(mib(value.clone()).is_err(), "{value}");
        }
    }
}
