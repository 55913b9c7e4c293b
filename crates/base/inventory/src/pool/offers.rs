//! Offers of cards, each with its deciding GPU pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_api::gpu_pool::Allocation;
use tessera_api::{Offer, PciBusId};

/// Offer of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardOffer {
    /// The deciding GpuPool; `None` if none selects the card.
    pub pool: Option<String>,
    /// The offer.
    pub offer: Arc<Offer>,
    /// The card's allocator.
    pub allocation: Allocation,
}

/// Offers of all cards of a node. The default applies to a card without a [set](CardOffers::set) offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardOffers {
    others: CardOffer,
    cards: BTreeMap<PciBusId, CardOffer>,
}

impl CardOffers {
    /// Sets the offer of a card.
    pub fn set(&mut self, card: PciBusId, offer: CardOffer) {
        self.cards.insert(card, offer);
    }

    /// The default offer, for changes.
    pub fn others_mut(&mut self) -> &mut Offer {
        Arc::make_mut(&mut self.others.offer)
    }

    /// Offer of a card.
    #[must_use]
    pub fn of(&self, card: PciBusId) -> &CardOffer {
        self.cards.get(&card).unwrap_or(&self.others)
    }
}

impl From<Offer> for CardOffers {
    /// The same offer for all cards, by no pool.
    fn from(offer: Offer) -> Self {
        let others = CardOffer { offer: Arc::new(offer), ..CardOffer::default() };
        Self { others, cards: BTreeMap::new() }
    }
}
