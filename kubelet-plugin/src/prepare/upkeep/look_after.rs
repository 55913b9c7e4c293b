//! When upkeep is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::prepare::cards::Worker;
use crate::prepare::{PrepareError, blocking};

/// Interval between searches for claims the kubelet will never unprepare.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// Interval between checks of the driver's files.
const FILES_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between attempts to destroy partitions not released by the driver.
const HELD_INTERVAL: Duration = Duration::from_secs(30);

/// Time limit of one background pass over all claims. The next pass handles the rest.
const BACKGROUND: Duration = Duration::from_secs(300);

impl Worker {
    /// Runs what is due from time to time, and when a driver is opened, until dropped.
    pub async fn look_after(self: &Arc<Self>) {
        let mut hardware = self.hardware.clone();
        let mut files = tokio::time::interval(FILES_INTERVAL);
        files.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut held = tokio::time::interval(HELD_INTERVAL);
        held.set_missed_tick_behavior(MissedTickBehavior::Delay);
        hardware.mark_changed();
        let mut may_change = true;
        let mut is_start = true;
        loop {
            tokio::select! {
                changed = hardware.changed(), if may_change => may_change = changed.is_ok(),
                _ = files.tick() => {
                    let worker = self.clone();
                    let look = blocking::run(move || worker.files.are_outdated(&worker.options.roots));
                    if !look.await.unwrap_or(false) {
                        continue;
                    }
                }
                _ = held.tick() => {
                    if hardware.borrow().is_some() {
                        report("destroy partitions that were not let go", in_time(self.release_held()).await);
                    }
                    continue;
                }
                _ = sweep.tick() => {
                    report("sweep claims", in_time(self.sweep()).await);
                    // At a start the search result is no older than this.
                    if !std::mem::take(&mut is_start) {
                        self.files.forget_search();
                    }
                }
            }
            if hardware.borrow_and_update().is_some() {
                // CDI specs first: a reloaded driver renumbers its cards, so a container restarting before its spec is updated
                // would get another card.
                report("put CDI specs back", in_time(self.restore_specs()).await);
                report("recover", in_time(self.recover()).await);
                report("make partitions anew", in_time(self.repair()).await);
            }
        }
    }
}

/// Limits background work to [`BACKGROUND`], then drops the work, because a driver call may hang. Dropping is as safe as the end
/// of the process.
pub(in crate::prepare) async fn in_time(
    work: impl Future<Output = Result<(), PrepareError>>,
) -> Result<(), PrepareError> {
    let late = || PrepareError::Busy { what: "one of the claims", longest: BACKGROUND };
    tokio::time::timeout(BACKGROUND, work).await.unwrap_or_else(|_| Err(late()))
}

fn report(what: &str, result: Result<(), PrepareError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "could not {what}");
    }
}
