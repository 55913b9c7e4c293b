use std::collections::BTreeMap;

use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::Health;

/// Value of the taint of a card that takes no new claims because a layout waits for it.
const PENDING: &str = "mig-layout-pending";

/// How far the layouts of all cards have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutStatus {
    /// Whether every card has been looked at, and what could be made at once was made: before, a node on which nothing
    /// is published yet need not publish what a layout is about to change.
    pub settled: bool,
    /// The cards that a layout is for.
    pub cards: BTreeMap<PciBusId, CardStatus>,
}

/// How far a card's layout has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardStatus {
    /// Name of the configuration.
    pub layout: String,
    /// How far.
    pub state: LayoutState,
    /// What is wrong or missing, for people; empty where nothing is.
    pub message: String,
    /// Whether the layout wants the card whole: partitions are not offered.
    pub whole_only: bool,
}

/// How far a card's layout has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayoutState {
    /// The card is as the layout wants it.
    Applied,
    /// It waits until the card is free; the card takes no new claims.
    Pending,
    /// It waits for a reset of the card, or a reboot.
    NeedsReset,
    /// It can't be; the card is left as it is.
    Failed,
}

impl LayoutState {
    /// Every state.
    pub const ALL: [LayoutState; 4] =
        [LayoutState::Applied, LayoutState::Pending, LayoutState::NeedsReset, LayoutState::Failed];

    /// As metrics and logs name it.
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
    /// Where no layouts are wanted.
    #[must_use]
    pub fn none() -> Self {
        LayoutStatus { settled: true, cards: BTreeMap::new() }
    }

    /// The machine as it shall be published: cards whose layout waits for them take no new claims, and of those that
    /// shall be whole no partition is offered.
    #[must_use]
    pub fn offered(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        for card in &mut machine.cards {
            let Some(status) = self.cards.get(&card.pci) else { continue };
            if status.state == LayoutState::Pending && card.health == Health::Healthy {
                card.health = Health::Unhealthy { reason: PENDING.to_owned() };
            }
            if let Some(mig) = card.mig.as_mut().filter(|mig| status.whole_only && !mig.mode) {
                mig.profiles.clear();
            }
        }
        machine
    }
}
