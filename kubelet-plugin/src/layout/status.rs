//! The state of the cards' layouts, and its effect on publishing.

use std::collections::BTreeMap;

use tessera_api::PciBusId;
use tessera_api::taint::MIG_LAYOUT_PENDING;
use tessera_inventory::Machine;
use tessera_inventory::machine::Health;

/// Stands for the name of a layout while a card gives up the partitions of a removed layout.
pub(super) const NO_LAYOUT: &str = "no layout";

/// State of the layouts of all cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutStatus {
    /// Whether every card has been looked at, and all changes possible at once have been made. Until then, a node
    /// without publication need not publish devices a layout is about to change.
    pub settled: bool,
    /// The cards with a layout.
    pub cards: BTreeMap<PciBusId, CardStatus>,
}

/// State of a card's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardStatus {
    /// Name of the configuration.
    pub layout: String,
    /// The state.
    pub state: LayoutState,
    /// For people: the error or the missing condition; empty if none.
    pub message: String,
    /// Whether the layout wants the card whole: partitions are not offered.
    pub whole_only: bool,
    /// Whether the layout defines the partitions on the card.
    pub is_fixed: bool,
}

/// State of a card's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayoutState {
    /// The card matches the layout.
    Applied,
    /// Waits until the card is free; the card takes no new claims.
    Pending,
    /// Waits for a reset of the card, or a reboot.
    NeedsReset,
    /// Not possible; the card is left unchanged.
    Failed,
}

impl LayoutState {
    /// Every state.
    pub const ALL: [LayoutState; 4] =
        [LayoutState::Applied, LayoutState::Pending, LayoutState::NeedsReset, LayoutState::Failed];

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LayoutState::Applied => "applied",
            LayoutState::Pending => "pending",
            LayoutState::NeedsReset => "needs_reset",
            LayoutState::Failed => "failed",
        }
    }
}

impl LayoutStatus {
    /// The status of a node without layouts.
    #[must_use]
    pub fn none() -> Self {
        LayoutStatus { settled: true, cards: BTreeMap::new() }
    }

    /// Whether a layout makes the card's partitions again when they are gone.
    #[must_use]
    pub fn makes_again(&self, card: PciBusId) -> bool {
        let status = self.cards.get(&card);
        status.is_some_and(|status| status.is_fixed && status.state == LayoutState::Applied)
    }

    /// The machine to publish: cards with a pending layout take no new claims, and cards that must
    /// stay whole offer no partitions.
    #[must_use]
    pub fn offered(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        for card in &mut machine.cards {
            let Some(status) = self.cards.get(&card.pci) else { continue };
            if status.state == LayoutState::Pending && card.health == Health::Healthy {
                card.health = Health::Unhealthy { reason: MIG_LAYOUT_PENDING.to_owned() };
            }
            if status.whole_only {
                card.offer_whole();
            }
        }
        machine
    }
}
