//! Prices of cards.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use tessera_api::fleet_view::CardView;

/// Prices by product name, given by the administrator. There are no default prices.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prices {
    /// Currency, shown before amounts: `USD`.
    pub currency: String,
    /// Price of a card-hour, by product name as in NVML (`NVIDIA H100 80GB HBM3`).
    pub per_card_hour: BTreeMap<String, f64>,
}

/// Why a price list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[from] std::io::Error),
    /// The file does not have the form `{"currency": "USD", "perCardHour": {"NVIDIA H100 80GB HBM3": 2.5}}`.
    #[error(
        "is no price list like {{\"currency\": \"USD\", \"perCardHour\": {{\"NVIDIA H100 80GB HBM3\": 2.5}}}}"
    )]
    Form(#[from] serde_json::Error),
    /// A price is negative, or not a number.
    #[error("has {price} as the price of {product}: a price is a number, 0 or more")]
    Price {
        /// The product.
        product: String,
        /// Its price.
        price: f64,
    },
}

impl Prices {
    /// Reads a list.
    ///
    /// # Errors
    /// See [`PricesError`].
    pub fn read(file: &Path) -> Result<Self, PricesError> {
        let prices: Self = serde_json::from_slice(&std::fs::read(file)?)?;
        let wrong = prices.per_card_hour.iter().find(|(_, price)| !price.is_finite() || **price < 0.0);
        match wrong {
            Some((product, price)) => Err(PricesError::Price { product: product.clone(), price: *price }),
            None => Ok(prices),
        }
    }

    /// Price of a card-hour, if given.
    pub fn of(&self, card: &CardView) -> Option<f64> {
        self.per_card_hour.get(&card.product_name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Prices, PricesError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Prices::read(file.path())
    }

    #[test]
    fn a_wrong_list_says_what_is_wrong() {
        let good = read(r#"{"currency": "USD", "perCardHour": {"NVIDIA H100 80GB HBM3": 2.5}}"#).unwrap();
        let card = CardView { product_name: "NVIDIA H100 80GB HBM3".to_owned(), ..CardView::default() };
        assert_eq!(good.of(&card), Some(2.5));
        assert_eq!(good.of(&CardView::default()), None);
        for (text, says) in [
            ("", "is no price list"),
            (r#"{"currency": "USD", "perCardHour": {"A": -1}}"#, "-1 as the price of A"),
            (r#"{"currency": "USD", "perCardHour": {"A": "cheap"}}"#, "is no price list"),
            (r#"{"currency": "USD", "perCardHour": {}, "perHour": 2}"#, "is no price list"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(matches!(Prices::read(Path::new("/nowhere/at/all")), Err(PricesError::Read(_))));
    }
}
