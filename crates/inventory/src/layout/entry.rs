use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Card;

/// A named configuration: what to do with cards, entry by entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutConfig {
    pub(super) entries: Vec<LayoutEntry>,
}

/// What shall be of the cards that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// PCI device ids of the cards it is for, device in the high half and vendor in the low (`0x20B210DE`); empty: any.
    pub device_filter: BTreeSet<u32>,
    /// Which cards of those.
    pub devices: CardIndexes,
    /// Whether MIG mode shall be on.
    pub mig_enabled: bool,
    /// How many GPU instances of which profile; none where the mode is off, and where partitions are made on demand.
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

    /// The entry for a card: of several the last, as `mig-parted` applies them one after the other. `None` where none is
    /// for it; a card whose index or PCI id is unknown is selected only by entries that don't ask for that.
    #[must_use]
    pub fn for_card(&self, card: &Card) -> Option<&LayoutEntry> {
        self.entries.iter().rev().find(|entry| entry.selects(card))
    }
}

impl LayoutEntry {
    /// Whether it is for this card.
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
