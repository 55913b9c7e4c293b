//! When the cards were last looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tessera_api::PciBusId;

/// Time and result of the last looks at the hardware. Changes with every look, whatever its result.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// Start of the last look with an answer to every driver call.
    pub complete: Option<Instant>,
    /// Start of the last look with a report from the driver about each card, even a loss.
    pub cards: BTreeMap<PciBusId, Instant>,
    /// Cards with a hanging driver call.
    pub hanging: BTreeSet<PciBusId>,
    /// Cards for which the driver recommends an unknown recovery, with its number.
    pub unknown_recoveries: BTreeMap<PciBusId, u64>,
    /// Things unreadable in the last look, each once.
    pub unread: Vec<String>,
}

impl Looks {
    /// Start of the last look with an answer from any card.
    #[must_use]
    pub fn any(&self) -> Option<Instant> {
        self.cards.values().max().copied()
    }
}
