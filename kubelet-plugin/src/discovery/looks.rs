//! When the cards were last looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tessera_api::PciBusId;

/// When the hardware was last looked at, and how that went. Changes with every look, whatever the look found.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// Start of the last look in which every driver call returned.
    pub complete: Option<Instant>,
    /// Start of the last look in which the driver reported something about each card, even that it is lost.
    pub cards: BTreeMap<PciBusId, Instant>,
    /// Cards with a hanging driver call.
    pub hanging: BTreeSet<PciBusId>,
    /// Cards for which the driver recommends a recovery that is not known here, with its number.
    pub unknown_recoveries: BTreeMap<PciBusId, u64>,
    /// What the last look could not read, each thing once.
    pub unread: Vec<String>,
}

impl Looks {
    /// Start of the last look in which any card answered.
    #[must_use]
    pub fn any(&self) -> Option<Instant> {
        self.cards.values().max().copied()
    }
}
