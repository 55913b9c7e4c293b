//! Amounts of capacities and counters: exact, small and fast to add.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tessera_api::quantity::{Quantity, QuantityError, QuantityFormat};

/// Billionths of a unit: Kubernetes quantities have no finer ones.
pub type Nanos = i128;

const NANO: Nanos = 1_000_000_000;

/// A thousandth of a unit.
const MILLI: Nanos = 1_000_000;

/// Amounts are capped at this (10^28 units, in billionths), so that sums cannot overflow.
const LARGEST: Nanos = 10i128.pow(37);

/// A quantity in the form needed by the search: its value as one number, because the search adds and compares millions
/// of them, and its text, because results repeat the text and Kubernetes compares a policy's default by text.
#[derive(Debug, Clone)]
pub struct Amount {
    nanos: Nanos,
    text: Arc<str>,
    quantity: Quantity,
}

impl PartialEq for Amount {
    /// Whether both are written the same way.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Amount {}

impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Amount {
    /// Reads a quantity such as `40Gi` or `1500m`.
    ///
    /// # Errors
    /// The text is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let quantity = Quantity::parse(text)?;
        let nanos = quantity.nanos().clamp(-LARGEST, LARGEST);
        Ok(Amount { nanos, text: Arc::from(text), quantity })
    }

    /// A whole number of units, as upstream computes it: `resource.NewQuantity(units, format)`.
    pub(crate) fn from_units(units: i64, format: QuantityFormat) -> Self {
        Self::computed(Nanos::from(units) * NANO, Quantity::integer(units, format))
    }

    /// A number of thousandths, as upstream computes it: `resource.NewMilliQuantity(thousandths, format)`.
    pub(crate) fn from_thousandths(thousandths: i64, format: QuantityFormat) -> Self {
        Self::computed(Nanos::from(thousandths) * MILLI, Quantity::thousandths(thousandths, format))
    }

    fn computed(nanos: Nanos, quantity: Quantity) -> Self {
        Amount { nanos, text: Arc::from(quantity.to_string()), quantity }
    }

    /// The amount in billionths of a unit, capped at 10^28 units.
    pub fn nanos(&self) -> Nanos {
        self.nanos
    }

    /// The amount as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The quantity.
    pub fn quantity(&self) -> &Quantity {
        &self.quantity
    }

    /// Upstream's `==`: same value, unit and, in canonical form, same text.
    pub(crate) fn same_struct(&self, other: &Self) -> bool {
        self.quantity.is_same_struct(&self.text, &other.quantity, &other.text)
    }

    /// The amount in whole units, rounded away from zero, like upstream's `Value`: for amounts beyond 64 bits, the
    /// lowest bits, or zero if the amount is kept as a power of ten.
    pub(crate) fn units(&self) -> i64 {
        let (whole, rest) = (self.nanos / NANO, self.nanos % NANO);
        let rounded = whole + if rest == 0 { 0 } else { self.nanos.signum() };
        match i64::try_from(rounded) {
            Ok(units) => units,
            Err(_) if self.quantity.is_decimal() => rounded as i64,
            Err(_) => 0,
        }
    }

    /// The amount in thousandths of a unit, if a whole number of them within 64 bits.
    pub(crate) fn thousandths(&self) -> Option<i64> {
        (self.nanos % MILLI == 0).then(|| i64::try_from(self.nanos / MILLI).ok()).flatten()
    }

    /// Whether the amount exceeds 64 bits of units.
    pub(crate) fn exceeds_64_bits(&self) -> bool {
        self.nanos > Nanos::from(i64::MAX) * NANO
    }
}

impl fmt::Display for Amount {
    /// As Kubernetes shows it in texts: mostly as written, in canonical form otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quantity.keeps_text() { f.write_str(&self.text) } else { self.quantity.fmt(f) }
    }
}

/// Writes billionths of a unit as a quantity, with a binary suffix for whole amounts.
pub fn show(nanos: Nanos) -> String {
    if nanos % NANO == 0
        && let Ok(units) = i64::try_from(nanos / NANO)
    {
        return Amount::from_units(units, QuantityFormat::BinarySi).text().to_owned();
    }
    for (suffix, size) in [("m", 1_000_000), ("u", 1_000)] {
        if nanos % size == 0 {
            return format!("{}{suffix}", nanos / size);
        }
    }
    format!("{nanos}n")
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
