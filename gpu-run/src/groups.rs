//! The process groups of all steps on a host.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::process::signal_group;

/// The processes of steps: each its group's first.
#[derive(Default)]
pub struct Groups {
    running: Mutex<Running>,
    changed: Condvar,
}

#[derive(Default)]
struct Running {
    /// Groups, with the step of each.
    steps: BTreeMap<i32, u64>,
    /// No more steps start.
    ended: bool,
}

impl Groups {
    /// Adds a step's process. Ends the process when no more steps may start.
    pub fn add(&self, group: i32, step: u64) {
        let mut running = self.lock();
        if running.ended {
            signal_group(group, Signal::SIGKILL);
        }
        running.steps.insert(group, step);
    }

    /// Removes an ended process.
    pub fn remove(&self, group: i32) {
        self.lock().steps.remove(&group);
        self.changed.notify_all();
    }

    /// A signal for the processes of a step.
    pub fn signal(&self, step: u64, signal: Signal) {
        self.signal_those(&self.lock(), &|of| of == step, signal);
    }

    /// Ends a step: SIGTERM, and SIGKILL `wait` later.
    pub fn end_step(&self, step: u64, wait: Duration) {
        self.end(&|of| of == step, wait);
    }

    /// Ends all steps, and lets no more start.
    pub fn end_all(&self, wait: Duration) {
        self.lock().ended = true;
        self.end(&|_| true, wait);
    }

    fn end(&self, which: &dyn Fn(u64) -> bool, wait: Duration) {
        let until = Instant::now() + wait;
        let mut running = self.lock();
        // A stopped process takes no SIGTERM.
        self.signal_those(&running, which, Signal::SIGTERM);
        self.signal_those(&running, which, Signal::SIGCONT);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !running.steps.values().any(|step| which(*step)) {
                return;
            }
            if left.is_zero() {
                self.signal_those(&running, which, Signal::SIGKILL);
                return;
            }
            let waited = self.changed.wait_timeout(running, left);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn signal_those(&self, running: &Running, which: &dyn Fn(u64) -> bool, signal: Signal) {
        for group in running.steps.iter().filter(|(_, step)| which(**step)).map(|(group, _)| group) {
            signal_group(*group, signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
