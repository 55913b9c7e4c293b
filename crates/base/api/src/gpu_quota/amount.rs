use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::GpuQuotaError;
use crate::quantity::Quantity;

/// Millionths of one.
pub const MILLIONTHS: u64 = 1_000_000;
/// Largest amount in [`Unit::Cards`], in millionths of a card: a million cards.
pub const LARGEST_CARDS: u64 = 1_000_000 * MILLIONTHS;
/// Largest amount in [`Unit::Memory`], in bytes: 1Ei.
pub const LARGEST_MEMORY: u64 = 1 << 60;

/// A guarantee and a limit in one unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.guaranteed) || !has(self.limit) || quantity(string(self.guaranteed)).compareTo(quantity(string(self.limit))) <= 0",
        "message": "guaranteed must not exceed limit",
    }, {
        "rule": "[has(self.guaranteed) ? string(self.guaranteed) : '0', has(self.limit) ? string(self.limit) : '0'].all(text, quantity(text).compareTo(quantity(self.unit == 'Cards' ? '1M' : '1Ei')) <= 0)",
        "message": "at most 1M cards, or 1Ei of memory",
    }, {
        "rule": "self.unit == 'Cards' || (!has(self.guaranteed) || !string(self.guaranteed).endsWith('m')) && (!has(self.limit) || !string(self.limit).endsWith('m'))",
        "message": "memory is counted in bytes: M is a million of them, m a thousandth of one",
    }]))
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Amount {
    /// Name, unique in the quota.
    #[cfg_attr(
        feature = "crd",
        schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    pub name: String,
    /// Unit of `guaranteed` and `limit`.
    pub unit: Unit,
    /// Amount the team gets back from borrowers when its pods want devices. Absent: 0.
    #[serde(default, deserialize_with = "guaranteed", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(schema_with = "quantity_schema"))]
    pub guaranteed: Option<Quantity>,
    /// Largest amount allocated to the team at any time, with borrowed devices. Absent: no limit.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(schema_with = "quantity_schema"))]
    pub limit: Option<Quantity>,
    /// A CEL expression over a whole card, as in a GpuPool: only devices of such cards count. Absent: all cards of managed
    /// pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 10240)))]
    pub cards: Option<String>,
}

/// Unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum Unit {
    /// Whole cards. A partition or share counts by its part of the card's memory.
    Cards,
    /// Memory of the devices, in bytes.
    Memory,
}

impl Amount {
    /// The guarantee in millionths of a card or in bytes; 0 if absent. See [`Unit::measure`].
    #[must_use]
    pub fn guaranteed(&self) -> u64 {
        self.guaranteed.as_ref().map_or(0, |quantity| self.unit.measure(quantity))
    }

    /// The limit in millionths of a card or in bytes, if any. See [`Unit::measure`].
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit.as_ref().map(|quantity| self.unit.measure(quantity))
    }

    pub(super) fn check(&self) -> Result<(), GpuQuotaError> {
        let field = |name: &str| format!("amounts[{}].{name}", self.name);
        if self.name.is_empty() {
            return Err(GpuQuotaError::value(field("name"), "must not be empty"));
        }
        if self.cards.as_deref().is_some_and(str::is_empty) {
            return Err(GpuQuotaError::value(
                field("cards"),
                "must not be empty: leave it out for all cards",
            ));
        }
        for (name, quantity) in [("guaranteed", &self.guaranteed), ("limit", &self.limit)] {
            let checked = quantity.as_ref().map_or(Ok(()), |quantity| self.unit.check(quantity));
            checked.map_err(|reason| GpuQuotaError::value(field(name), reason))?;
        }
        if self.limit().is_some_and(|limit| self.guaranteed() > limit) {
            return Err(GpuQuotaError::value(field("guaranteed"), "must not exceed limit"));
        }
        Ok(())
    }
}

impl Unit {
    /// The quantity as an integer: millionths of a card, or bytes. Finer parts are dropped, and values out of range become the
    /// nearest in range: 0 to [`LARGEST_CARDS`] or [`LARGEST_MEMORY`].
    #[must_use]
    pub fn measure(self, quantity: &Quantity) -> u64 {
        let measure = quantity.nanos().max(0) / self.nanos();
        u64::try_from(measure).unwrap_or(u64::MAX).min(self.largest())
    }

    /// A result of [`Self::measure`] as users write it: `3.50` cards, or `960Gi`.
    #[must_use]
    pub fn text(self, measure: u64) -> String {
        match self {
            Unit::Cards => crate::fleet_view::cards(measure as f64 / MILLIONTHS as f64),
            Unit::Memory => Quantity::bytes(i64::try_from(measure).unwrap_or(i64::MAX)).to_string(),
        }
    }

    /// Billionths of one in the finest part counted.
    fn nanos(self) -> i128 {
        match self {
            Unit::Cards => 1_000,
            Unit::Memory => 1_000_000_000,
        }
    }

    fn largest(self) -> u64 {
        match self {
            Unit::Cards => LARGEST_CARDS,
            Unit::Memory => LARGEST_MEMORY,
        }
    }

    fn check(self, quantity: &Quantity) -> Result<(), &'static str> {
        let nanos = quantity.nanos();
        if nanos < 0 {
            return Err("must not be negative");
        }
        if nanos > i128::from(self.largest()) * self.nanos() {
            return Err(match self {
                Unit::Cards => "must be at most 1M",
                Unit::Memory => "must be at most 1Ei",
            });
        }
        if nanos > 0 && nanos < self.nanos() {
            return Err(match self {
                Unit::Cards => "must be 0 or at least 1u, a millionth of a card",
                Unit::Memory => "must be 0 or at least 1, a byte: M is a million, m a thousandth",
            });
        }
        Ok(())
    }
}

fn guaranteed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    quantity(deserializer, "guaranteed")
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    quantity(deserializer, "limit")
}

/// YAML without quotation marks: Kubernetes takes whole numbers for quantities too.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D, field: &str) -> Result<Option<Quantity>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let quantity = match &value {
        Value::Null => return Ok(None),
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_i64().map(Quantity::decimal),
        _ => None,
    };
    let wrong =
        || D::Error::custom(format!("{field}: {value} is not a quantity, such as 12, 500m or \"960Gi\""));
    quantity.map(Some).ok_or_else(wrong)
}

#[cfg(feature = "crd")]
fn quantity_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maxLength": 32,
        "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_integers_without_finer_parts() {
        for (unit, value, expected, text) in [
            ("Cards", json!(12), 12_000_000, "12.00"),
            ("Cards", json!("12"), 12_000_000, "12.00"),
            ("Cards", json!("500m"), 500_000, "0.50"),
            ("Cards", json!("3.1234567"), 3_123_456, "3.12"),
            ("Cards", json!(0), 0, "0.00"),
            ("Cards", json!("1M"), LARGEST_CARDS, "1000000.00"),
            ("Memory", json!("960Gi"), 960 << 30, "960Gi"),
            ("Memory", json!("1.5Ki"), 1536, "1536"),
            ("Memory", json!("1500m"), 1, "1"),
            ("Memory", json!(1000), 1000, "1k"),
            ("Memory", json!("1Ei"), LARGEST_MEMORY, "1Ei"),
        ] {
            let amount: Amount = serde_json::from_value(
                json!({"name": "n", "unit": unit, "guaranteed": value, "limit": value}),
            )
            .unwrap();
            amount.check().unwrap();
            assert_eq!((amount.guaranteed(), amount.limit()), (expected, Some(expected)), "{value}");
            assert_eq!(amount.unit.text(expected), text);
        }
        let amount: Amount =
            serde_json::from_value(json!({"name": "n", "unit": "Cards", "guaranteed": null})).unwrap();
        assert_eq!((amount.guaranteed(), amount.limit()), (0, None));
    }
}
