//! Offer of a card, depending on its MIG mode and on instances created by others.

use tessera_api::Offer;

use crate::machine::Card;
use crate::mig::Grid;
use crate::warning::Warning;

/// Offer of a card. Counters prevent allocating two offers in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Possible {
    /// The card as a whole, and shares of it.
    Whole,
    /// Partitions, made on demand.
    Partitions,
    /// Both: the mode is switched on demand of a claim.
    Both,
    /// The instances created by someone else, unchanged.
    Existing,
}

impl Possible {
    /// The possible offer of `card`; `None` if nothing can be offered.
    ///
    /// On Ampere the current mode decides, since switching needs a reset. Later cards are switched on demand of claims.
    pub fn of(card: &Card, grid: &Grid<'_>, warnings: &mut Vec<Warning>) -> Option<Self> {
        let Some(mig) = &card.mig else { return Some(Self::Whole) };
        if mig.mode && !mig.instances.is_empty() {
            warnings.push(Warning::PartitionedByHand(card.pci));
            return Some(Self::Existing);
        }
        match (mig.mode, grid.profiles.is_empty()) {
            // Its instances are unknown.
            (true, true) => {
                warnings.push(Warning::MigModeOn(card.pci));
                None
            }
            (true, false) if mig.mode_switch_needs_reset => Some(Self::Partitions),
            (false, false) if mig.mode_switch_needs_reset => Some(Self::Whole),
            (false, true) => Some(Self::Whole),
            (_, false) => Some(Self::Both),
        }
    }

    pub const fn whole(self) -> bool {
        matches!(self, Self::Whole | Self::Both)
    }

    /// Whether `offer` has more than the card as a whole, for a card with the partitions of `grid`.
    pub fn has_others(self, grid: &Grid<'_>, offer: &Offer) -> bool {
        let partitions = self.partitions()
            && grid.profiles.iter().any(|profile| offer.offers_partition(&profile.facts.name));
        let sharing = &offer.sharing;
        let shares = sharing.mps.as_ref().is_some_and(|mps| mps.cards) || sharing.time_slicing.is_some();
        self == Self::Existing || partitions || self.whole() && shares
    }

    pub const fn partitions(self) -> bool {
        matches!(self, Self::Partitions | Self::Both)
    }
}
