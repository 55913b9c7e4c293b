//! The cards counted by an amount of a quota.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tessera_api::attribute;
use tessera_cel::{Device, Environment, PublishedAttribute, Selector};
use tessera_cluster::CardClass;
use tessera_placement::take_limit::Covers;

/// Cards for which an expression is true; all cards without one.
pub(crate) struct Covered {
    selector: Option<Selector>,
    driver: String,
    known: Mutex<BTreeMap<CardClass, bool>>,
}

impl fmt::Debug for Covered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Covered").finish_non_exhaustive()
    }
}

impl Covered {
    /// The cards of this driver for which the expression is true.
    ///
    /// # Errors
    /// The expression cannot be compiled.
    pub fn new(driver: &str, cards: Option<&str>) -> Result<Self, String> {
        let compile =
            |text| Selector::compile_new(text, Environment::default()).map_err(|error| error.to_string());
        let selector = cards.map(compile).transpose()?;
        Ok(Covered { selector, driver: driver.to_owned(), known: Mutex::default() })
    }

    /// Whether all cards are covered, of whatever kind.
    pub fn is_everything(&self) -> bool {
        self.selector.is_none()
    }

    /// A card for which the expression fails is not covered.
    fn evaluate(&self, class: &CardClass) -> bool {
        let Some(selector) = &self.selector else { return true };
        let CardClass { product_name, architecture, brand, gpu_pool, .. } = class;
        let all = [
            (attribute::PRODUCT_NAME, product_name),
            (attribute::ARCHITECTURE, architecture),
            (attribute::BRAND, brand),
            (attribute::GPU_POOL, gpu_pool),
        ];
        let published = all
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), PublishedAttribute::String(value.clone()?))));
        let device = Device::new(self.driver.clone()).with_attributes(&published.collect(), false);
        selector.matches(&device).unwrap_or(false)
    }
}

impl Covers for Covered {
    fn covers(&self, class: &CardClass) -> bool {
        if self.selector.is_none() || class.is_unknown {
            return true;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(class) {
            return *known;
        }
        let covers = self.evaluate(class);
        known.insert(class.clone(), covers);
        covers
    }
}
