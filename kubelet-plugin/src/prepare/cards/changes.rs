//! Makes and undoes changes of cards for claims: MIG mode, partitions, and shares of cards and partitions.
//!
//! ```text
//! needs of a claim     ─┐
//! state of the card    ─┼─> plan ─> intents in the journal ─> make ─> complete records
//! records of the card  ─┘                                     unmake <─ records without a claim
//! ```
//!
//! One hardware record per change, with a fixed name (`record_ids.rs`). A record without a claim is waste. Waste is undone as
//! soon as the card's lock is taken next and the driver is there, so nothing is left behind by a crash, a driver gone away, or a
//! program failing to end.
//!
//! All of this runs on blocking threads, under the card's lock, one step at a time per card.

mod cards;
mod make;
mod mode;
mod plan;
mod share;
mod unmake;

use std::path::PathBuf;
use std::sync::Arc;

use tessera_nvml::Nvml;
use tokio::sync::Notify;

use super::sharing::Sharing;
use crate::prepare::{PrepareError, PrepareObserver};
use tessera_card::CardLocks;
use tessera_journal::{HardwareRecord, Journal, Stage};

pub(in crate::prepare) use make::make;
pub(in crate::prepare) use plan::{CardPlan, plan};
pub(in crate::prepare) use share::make_shares;
pub(in crate::prepare) use unmake::{IfHeld, Left, unmake};

/// Tools for work on cards.
#[derive(Clone)]
pub(in crate::prepare) struct Tools {
    pub nvml: Arc<dyn Nvml>,
    pub journal: Arc<Journal>,
    pub observer: Arc<dyn PrepareObserver>,
    /// procfs of this process, for names of programs.
    pub proc: PathBuf,
    pub sharing: Sharing,
    /// Triggers another discovery.
    pub look_again: Arc<Notify>,
    /// The locks of the cards, kept until the work is over.
    pub _locks: CardLocks,
}

impl Tools {
    /// Records a change as made. No sync: a record of another boot is not believed, so this one need only survive the process.
    fn complete(&self, record: HardwareRecord) -> Result<(), PrepareError> {
        let complete = HardwareRecord { stage: Stage::Complete, ..record };
        Ok(self.journal.put_hardware_unsynced(&complete)?)
    }
}

/// A mode in words.
const fn on_or_off(mode: bool) -> &'static str {
    if mode { "on" } else { "off" }
}
