//! Which cards are locked and waited for, and since when: for people who look for what hangs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tessera_api::PciBusId;
use tokio::task;

/// The lock of a card, as a task of this process has it or waits for it.
#[derive(Clone, Copy, Debug)]
pub struct LockState {
    /// The card.
    pub card: PciBusId,
    /// Whether it is held; otherwise it is waited for.
    pub is_held: bool,
    /// Since when.
    pub since: Instant,
    /// The task that took it, or waits. Threads that work for the task hold it, too.
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

/// One of them, until it is dropped.
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
