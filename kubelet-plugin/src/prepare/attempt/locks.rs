//! Steps 1 and 3: the locks of the claim and of its cards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::PciBusId;
use tessera_card::{CardLocks, FileLock, LockError};

use super::steps::{Attempt, LOCK_PATIENCE};
use crate::prepare::tell::claim_events;
use crate::prepare::{Phase, PrepareError};

/// A claim queueing this long for its cards gets an Event. A few seconds are not worth one.
const TELL_QUEUED_AFTER: Duration = Duration::from_secs(5);

impl Attempt<'_> {
    /// The claim's lock, waiting at most `longest`.
    pub async fn claim_lock(&self, longest: Duration) -> Result<FileLock, PrepareError> {
        self.locked("the claim", longest, self.worker.locks.claim(&self.claim.uid)).await
    }

    /// The cards' locks. Claims of one card queue for them until the call's deadline: each step on a card takes about a second,
    /// and a claim leaving the queue would start again at its end.
    pub async fn card_locks(&self, cards: &BTreeSet<PciBusId>) -> Result<CardLocks, PrepareError> {
        const WHAT: &str = "a card of the claim";
        let worker = self.worker;
        let longest = self.call.time_left(LOCK_PATIENCE);
        let locks = self.locked(WHAT, longest, worker.locks.cards(cards));
        tokio::pin!(locks);
        let locks = tokio::select! {
            biased;
            locks = &mut locks => locks,
            () = tokio::time::sleep(LOCK_PATIENCE) => {
                let busy = PrepareError::Busy { what: WHAT, longest: TELL_QUEUED_AFTER };
                worker.observer.waiting(busy.reason(), true);
                let told = tokio::time::timeout(TELL_QUEUED_AFTER - LOCK_PATIENCE, &mut locks).await;
                let locks = match told {
                    Ok(locks) => locks,
                    Err(_) => {
                        let pods = self.call.consumers();
                        claim_events::waiting(&worker.events, self.operation, self.claim, &pods, &busy);
                        locks.await
                    }
                };
                worker.observer.waiting(busy.reason(), false);
                locks
            }
        };
        let locks = locks.map_err(|error| match error {
            PrepareError::Busy { .. } => worker.calls.hanging(cards).map_or(error, PrepareError::from),
            error => error,
        });
        locks.map(Arc::new)
    }

    async fn locked<T>(
        &self,
        what: &'static str,
        longest: Duration,
        lock: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, PrepareError> {
        let lock = async {
            let locked = tokio::time::timeout(longest, lock).await;
            locked.map_err(|_| PrepareError::Busy { what, longest })?.map_err(PrepareError::from)
        };
        self.timed(Phase::Lock, self.call.unless_ended(lock)).await
    }
}
