use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tessera_api::PciBusId;

/// When the hardware was last looked at, and with what success. It changes with every look, whatever the look found.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// Begin of the last look in which every call of the driver returned.
    pub complete: Option<Instant>,
    /// Begin of the last look in which the driver said something of each card, be it that it is lost.
    pub cards: BTreeMap<PciBusId, Instant>,
    /// Cards about which a call of the driver hangs.
    pub hanging: BTreeSet<PciBusId>,
}

impl Looks {
    /// Begin of the last look in which any card answered.
    #[must_use]
    pub fn any(&self) -> Option<Instant> {
        self.cards.values().max().copied()
    }
}
