//! What of a card is offered, by its MIG mode and by what others made of it.

use std::collections::BTreeSet;

use tessera_api::{PartitionName, PciBusId};

use super::Warning;
use crate::machine::{Card, GpuInstance};
use crate::mig::Grid;

/// What of a card is offered. Never everything at once: counters keep apart what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The card as a whole, and shares of it.
    Whole,
    /// Partitions, made on demand.
    Partitions,
    /// Both: the mode is switched when a claim needs it.
    Both,
    /// The instances that someone else made, as they are.
    Existing,
}

impl Offer {
    /// What is offered of `card`; `None` where nothing can be.
    ///
    /// On Ampere the mode decides, since switching it takes a reset. Later cards are switched as claims need it.
    pub fn of(
        card: &Card,
        grid: &Grid<'_>,
        own: &BTreeSet<PartitionName>,
        warnings: &mut Vec<Warning>,
    ) -> Option<Self> {
        let Some(mig) = &card.mig else { return Some(Self::Whole) };
        let foreign = |instance| !is_own(card.pci, instance, grid, own);
        if mig.mode && mig.instances.iter().any(foreign) {
            warnings.push(Warning::PartitionedByHand(card.pci));
            return Some(Self::Existing);
        }
        match (mig.mode_switch_needs_reset, mig.mode, grid.profiles.is_empty()) {
            (true, true, true) => {
                warnings.push(Warning::MigModeOn(card.pci));
                None
            }
            (true, true, false) => Some(Self::Partitions),
            (true, false, _) | (false, _, true) => Some(Self::Whole),
            (false, _, false) => Some(Self::Both),
        }
    }

    pub const fn whole(self) -> bool {
        matches!(self, Self::Whole | Self::Both)
    }

    pub const fn partitions(self) -> bool {
        matches!(self, Self::Partitions | Self::Both)
    }
}

/// Whether an instance is one of the partitions that this driver made, or is making.
pub fn is_own(
    card: PciBusId,
    instance: &GpuInstance,
    grid: &Grid<'_>,
    own: &BTreeSet<PartitionName>,
) -> bool {
    grid.profile_of(instance).is_some_and(|profile| {
        own.contains(&PartitionName {
            card,
            profile: profile.spelling.clone(),
            start: instance.placement.start,
            existing: None,
        })
    })
}
