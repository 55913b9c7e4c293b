use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Card;

/// A named configuration: entries with selected cards and their wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutConfig {
    pub(super) entries: Vec<LayoutEntry>,
}

/// Wanted state of the selected cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// PCI device ids of the selected cards, device in the high half and vendor in the low (`0x20B210DE`); empty
    /// selects any.
    pub device_filter: BTreeSet<u32>,
    /// Further selection among these cards.
    pub devices: CardIndexes,
    /// Whether MIG mode is to be on.
    pub mig_enabled: bool,
    /// Number of GPU instances by profile; empty if the mode is off, and if partitions are created on demand.
    pub mig_devices: BTreeMap<String, u32>,
}

/// Cards by their position in the driver's enumeration (`nvmlDeviceGetIndex`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardIndexes {
    /// `all`
    All,
    /// `[0, 1]`
    Some(BTreeSet<u32>),
}

impl LayoutConfig {
    /// The entries, in the file's order.
    #[must_use]
    pub fn entries(&self) -> &[LayoutEntry] {
        &self.entries
    }

    /// The entry for a card: the last of several, since `mig-parted` applies them one after the other. A card with an
    /// unknown index or PCI id is selected only by entries without a filter on the unknown value.
    /// `None` if no entry selects the card.
    #[must_use]
    pub fn for_card(&self, card: &Card) -> Option<&LayoutEntry> {
        self.entries.iter().rev().find(|entry| entry.selects(card))
    }
}

impl LayoutEntry {
    /// Whether the entry selects this card.
    #[must_use]
    pub fn selects(&self, card: &Card) -> bool {
        let by_id = self.device_filter.is_empty()
            || card.pci_device_id.is_some_and(|id| self.device_filter.contains(&id));
        by_id
            && match &self.devices {
                CardIndexes::All => true,
                CardIndexes::Some(indexes) => card.index.is_some_and(|index| indexes.contains(&index)),
            }
    }
}
