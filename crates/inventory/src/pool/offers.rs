//! What is offered of each card, and by which GPU pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_api::gpu_pool::Allocation;
use tessera_api::{Offer, PciBusId};

/// What is offered of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardOffer {
    /// The GpuPool that says so; `None` where none selects the card.
    pub pool: Option<String>,
    /// What is offered.
    pub offer: Arc<Offer>,
    /// Who allocates it.
    pub allocation: Allocation,
}

/// What is offered of each card of a node. Of a card that was not [set](CardOffers::set), the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardOffers {
    others: CardOffer,
    cards: BTreeMap<PciBusId, CardOffer>,
}

impl CardOffers {
    /// Says what is offered of a card.
    pub fn set(&mut self, card: PciBusId, offer: CardOffer) {
        self.cards.insert(card, offer);
    }

    /// What is offered of the cards that were not set, to change it.
    pub fn others_mut(&mut self) -> &mut Offer {
        Arc::make_mut(&mut self.others.offer)
    }

    /// What is offered of a card.
    #[must_use]
    pub fn of(&self, card: PciBusId) -> &CardOffer {
        self.cards.get(&card).unwrap_or(&self.others)
    }
}

impl From<Offer> for CardOffers {
    /// The same of all cards, by no pool.
    fn from(offer: Offer) -> Self {
        let others = CardOffer { offer: Arc::new(offer), ..CardOffer::default() };
        Self { others, cards: BTreeMap::new() }
    }
}
