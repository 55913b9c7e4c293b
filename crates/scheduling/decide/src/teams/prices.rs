//! What cards count in the order of teams.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

use tessera_cluster::{CardClass, Cluster};

/// Thousandths that the cheapest card counts, and a card without a price.
const LEAST: u64 = 1000;

/// The most that a card counts, in thousandths: sums stay far from overflow.
const MOST: f64 = 1e6;

/// By product name, what a card counts in the order of teams: one of twice the price of the cheapest counts twice.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    /// Thousandths.
    of_products: BTreeMap<String, u64>,
}

/// Cards in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Millionths of a card.
    pub cards: u64,
    /// The same, each card as often as it counts by its price.
    pub by_price: u64,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Self) {
        self.cards = self.cards.saturating_add(other.cards);
        self.by_price = self.by_price.saturating_add(other.by_price);
    }
}

impl SubAssign for Taken {
    fn sub_assign(&mut self, other: Self) {
        self.cards = self.cards.saturating_sub(other.cards);
        self.by_price = self.by_price.saturating_sub(other.by_price);
    }
}

impl Prices {
    /// From prices of an hour; those that are not above 0 count as none.
    pub fn new(per_card_hour: &BTreeMap<String, f64>) -> Self {
        let positive = || per_card_hour.iter().filter(|(_, price)| **price > 0.0);
        let least = positive().map(|(_, price)| *price).fold(f64::INFINITY, f64::min);
        let count = |price: f64| (price / least * LEAST as f64).min(MOST).round() as u64;
        Prices { of_products: positive().map(|(product, price)| (product.clone(), count(*price))).collect() }
    }

    /// These millionths of cards of the class.
    pub fn taken(&self, class: &CardClass, cards: u64) -> Taken {
        let priced = class.product_name.as_ref().and_then(|product| self.of_products.get(product));
        let by_price = u128::from(cards) * u128::from(priced.copied().unwrap_or(LEAST)) / u128::from(LEAST);
        Taken { cards, by_price: u64::try_from(by_price).unwrap_or(u64::MAX) }
    }

    /// Use of the namespaces.
    pub fn of_namespaces<'n>(&self, cluster: &Cluster, namespaces: impl Iterator<Item = &'n str>) -> Taken {
        let mut sum = Taken::default();
        for (class, worth) in namespaces.flat_map(|namespace| cluster.charges().of_namespace(namespace)) {
            sum += self.taken(class, worth.cards);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_twice_the_price_counts_twice() {
        let given = [("a", 2.5), ("b", 5.0), ("free", 0.0), ("odd", f64::NAN), ("gold", 1e12)];
        let prices = Prices::new(&given.map(|(product, price)| (product.to_owned(), price)).into());
        let class =
            |product: &str| CardClass { product_name: Some(product.to_owned()), ..CardClass::default() };
        for (product, wanted) in [("a", 7), ("b", 14), ("free", 7), ("odd", 7), ("other", 7), ("gold", 7_000)]
        {
            assert_eq!(prices.taken(&class(product), 7), Taken { cards: 7, by_price: wanted }, "{product}");
        }
        assert_eq!(prices.taken(&CardClass::default(), 7).by_price, 7);
        assert_eq!(Prices::default().taken(&class("b"), u64::MAX).by_price, u64::MAX);
    }
}
