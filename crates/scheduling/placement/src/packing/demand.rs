//! A pod's request to one node.

use super::limits::{MAX_CARDS, MAX_MODELS, WHOLE};

/// A set of card models, each a number below [`MAX_MODELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelSet(u64);

impl ModelSet {
    /// Any model.
    pub const ANY: Self = Self(u64::MAX);
    /// None.
    pub const NONE: Self = Self(0);

    /// The set with one more model. A number of [`MAX_MODELS`] or more is ignored.
    #[must_use]
    pub const fn with(self, model: u8) -> Self {
        if model < MAX_MODELS { Self(self.0 | 1 << model) } else { self }
    }

    /// Whether the set contains the model.
    #[must_use]
    pub const fn has(self, model: u8) -> bool {
        model < MAX_MODELS && self.0 >> model & 1 == 1
    }

    /// The lowest number; [`MAX_MODELS`] if the set is empty.
    #[must_use]
    pub const fn first(self) -> u8 {
        // At most 64.
        self.0.trailing_zeros() as u8
    }
}

/// A pod's request to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    cpu_milli: u64,
    memory_mib: u64,
    cards: u8,
    thousandths: u16,
    models: ModelSet,
}

/// Reason for rejecting a demand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDemand {
    /// More cards than a node can have.
    #[error("{0} cards of one node; at most {MAX_CARDS} are supported")]
    TooManyCards(u64),
    /// No part of a card, or more than a card.
    #[error("{0} thousandths of a card; from 1 to {WHOLE} are possible")]
    Part(u64),
    /// Parts of several cards.
    #[error("{0} thousandths of each of {1} cards; only whole cards can be had together")]
    SeveralParts(u64, u64),
}

impl Demand {
    /// CPU in thousandths of a core, memory in MiB, and `cards` cards of one of the `models` with `thousandths` of each. With 0
    /// cards, the last two are ignored.
    ///
    /// # Errors
    /// If no node could have such cards.
    pub fn new(
        cpu_milli: u64,
        memory_mib: u64,
        cards: u64,
        thousandths: u64,
        models: ModelSet,
    ) -> Result<Self, InvalidDemand> {
        if cards == 0 {
            return Ok(Self { cpu_milli, memory_mib, cards: 0, thousandths: 0, models: ModelSet::ANY });
        }
        if cards > MAX_CARDS as u64 {
            return Err(InvalidDemand::TooManyCards(cards));
        }
        let part = u16::try_from(thousandths).ok().filter(|part| (1..=WHOLE).contains(part));
        let part = part.ok_or(InvalidDemand::Part(thousandths))?;
        if cards > 1 && part < WHOLE {
            return Err(InvalidDemand::SeveralParts(thousandths, cards));
        }
        // At most MAX_CARDS.
        Ok(Self { cpu_milli, memory_mib, cards: cards as u8, thousandths: part, models })
    }

    /// Thousandths of a core.
    #[must_use]
    pub const fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    /// MiB.
    #[must_use]
    pub const fn memory_mib(&self) -> u64 {
        self.memory_mib
    }

    /// Number of cards used, in whole or in part.
    #[must_use]
    pub const fn cards(&self) -> u8 {
        self.cards
    }

    /// Thousandths of each card; [`WHOLE`] for whole cards.
    #[must_use]
    pub const fn thousandths(&self) -> u16 {
        self.thousandths
    }

    /// Thousandths of a card in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.cards as u64 * self.thousandths as u64
    }

    /// Accepted models.
    #[must_use]
    pub const fn models(&self) -> ModelSet {
        self.models
    }

    /// Whether the demand is a part of one card.
    #[must_use]
    pub const fn is_share(&self) -> bool {
        self.cards == 1 && self.thousandths < WHOLE
    }

    /// Size requested of each card, as an index of [`super::card_prices::CardPrices`]: in hundredths of a card, rounded up.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.thousandths.div_ceil(10) as usize
    }

    /// The demand with memory set to 0.
    #[must_use]
    pub const fn without_memory(self) -> Self {
        Self { memory_mib: 0, ..self }
    }

    /// A whole card of these models, and nothing else.
    #[must_use]
    pub(crate) const fn bare_card(models: ModelSet) -> Self {
        Self { cpu_milli: 0, memory_mib: 0, cards: 1, thousandths: WHOLE, models }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_node_could_have_is_refused() {
        let demand = |cards, part| Demand::new(1000, 1024, cards, part, ModelSet::ANY);
        assert_eq!(demand(17, 1000), Err(InvalidDemand::TooManyCards(17)));
        assert_eq!(demand(1, 0), Err(InvalidDemand::Part(0)));
        assert_eq!(demand(1, 1001), Err(InvalidDemand::Part(1001)));
        assert_eq!(demand(2, 500), Err(InvalidDemand::SeveralParts(500, 2)));
        assert_eq!(demand(0, 7).unwrap().total(), 0);
        let sizes = [1, 10, 11, 999, 1000].map(|part| demand(1, part).unwrap().size());
        assert_eq!(sizes, [1, 1, 2, 100, 100]);
    }
}
