//! Cards locked and waited for, with times: to find the cause of a hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tessera_api::PciBusId;
use tokio::task;

/// The lock of a card, held or awaited by a task of this process.
#[derive(Clone, Copy, Debug)]
pub struct LockState {
    /// The card.
    pub card: PciBusId,
    /// Whether the lock is held; otherwise a task waits for it.
    pub is_held: bool,
    /// Since when.
    pub since: Instant,
    /// The holding or waiting task. Threads working for the task hold the lock, too.
    pub task: Option<task::Id>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockWatch(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    states: BTreeMap<u64, LockState>,
}

/// One entry, until dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    watch: LockWatch,
    number: u64,
}

impl LockWatch {
    pub fn add(&self, card: PciBusId, is_held: bool) -> Watched {
        let state = LockState { card, is_held, since: Instant::now(), task: task::try_id() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = known.next;
        known.next += 1;
        known.states.insert(number, state);
        Watched { watch: self.clone(), number }
    }

    pub fn states(&self) -> Vec<LockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).states.values().copied().collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.0.lock().unwrap_or_else(PoisonError::into_inner).states.remove(&self.number);
    }
}
