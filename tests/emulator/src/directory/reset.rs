//! Card reset, shared by all callers.

use super::{CreateError, capabilities};
use crate::mig::mode;
use crate::state::{Meter, Store, StoreError, meter};

/// Why a card is not reset.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// A program is on it.
    #[error("card {card} is in use by process {pid}: it cannot be reset")]
    InUse {
        /// Index of the card.
        card: usize,
        /// The first of its processes.
        pid: u32,
    },
    /// The machine's files cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files showing its partitions cannot be changed.
    #[error(transparent)]
    Files(#[from] CreateError),
}

/// Resets the card with this index: partitions are gone, a pending MIG mode takes effect, and counters start anew.
///
/// # Errors
/// Processes are on the card (the driver refuses the reset, too), or the machine's files cannot be changed.
pub fn card(store: &Store, index: usize) -> Result<(), ResetError> {
    let machine = store.machine()?;
    store.update(|state| {
        let card = &mut state.cards[index];
        if let Some(process) = card.processes.first() {
            return Err(ResetError::InUse { card: index, pid: process.pid });
        }
        mode::reset(&mut card.mig);
        card.health = card.health.after_reset();
        card.meter = Meter::starting(meter::now());
        Ok(capabilities::show(store.root(), &machine.cards[index], &card.mig)?)
    })
}
