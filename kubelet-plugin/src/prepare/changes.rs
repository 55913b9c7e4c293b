//! Changes of cards that claims need, and their end: MIG mode, partitions, and shares of cards and partitions.
//!
//! ```text
//! what a claim needs ─┐
//! what is on the card ┼─> plan ─> intents in the journal ─> make ─> complete records
//! what is recorded ───┘                                     unmake <─ records that no claim refers to
//! ```
//!
//! One hardware record a change, named after what it makes, so that it is found without being searched: a partition's
//! and a share's after its device, the switch of a card's MIG mode `<card>-mig-mode`. A record that no claim refers to is waste: it is
//! undone as soon as someone has the card's lock and the driver is there. So nothing that a crash, a driver that went away
//! or a program that would not end leaves behind stays.
//!
//! All of it runs on blocking threads, under the card's lock, one step after the other on one card.

mod cards;
mod make;
mod plan;
mod share;
mod unmake;

use std::path::PathBuf;
use std::sync::Arc;

use tessera_api::{DeviceName, PartitionName, PciBusId};
use tessera_nvml::Nvml;

use super::PrepareObserver;
use super::sharing::Sharing;
use tessera_card::CardLocks;
use tessera_journal::{BootId, Journal};

pub(super) use make::make;
pub(super) use plan::{CardPlan, plan};
pub(super) use share::make_shares;
pub(super) use unmake::{Left, unmake};

/// What all work on cards needs.
#[derive(Clone)]
pub(super) struct Tools {
    pub nvml: Arc<dyn Nvml>,
    pub journal: Arc<Journal>,
    pub observer: Arc<dyn PrepareObserver>,
    /// procfs as this process sees it: the names of programs are there.
    pub proc: PathBuf,
    pub sharing: Sharing,
    /// The locks of the cards that are worked on, so that nobody else has them before the work is over.
    pub _locks: CardLocks,
}

impl Tools {
    fn boot(&self) -> &BootId {
        self.journal.boot_id()
    }
}

/// Id of the record of a partition.
pub(super) fn partition_id(partition: &PartitionName) -> String {
    partition.to_string()
}

/// Id of the record of the switch of a card's MIG mode.
pub(super) fn mode_id(card: PciBusId) -> String {
    format!("{}-mig-mode", DeviceName::Card(card))
}

/// Id of the record of how the pods of one claim share a device that it holds for itself.
pub(super) fn own_share_id(device: &str) -> String {
    format!("{device}{OWN_SHARE}")
}

/// The device of a share's record.
pub(super) fn device_of_share(id: &str) -> &str {
    id.strip_suffix(OWN_SHARE).unwrap_or(id)
}

const OWN_SHARE: &str = "-sharing";

/// A mode in words.
const fn on_or_off(mode: bool) -> &'static str {
    if mode { "on" } else { "off" }
}
