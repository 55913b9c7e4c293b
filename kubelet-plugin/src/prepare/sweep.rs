use super::allocation::{allocated_devices, is_of_allocation};
use super::claim::{self, Found};
use super::forgotten::is_forgotten;
use super::holder::{Holder, holders};
use super::worker::Worker;
use super::{ClaimReference, Operation, PrepareError, blocking};
use crate::journal::ClaimRecord;

/// Why a claim keeps what it holds, as the end of a refusal: with the separator in front.
type Reason = &'static str;

const BUSY: Reason = "; that claim is being worked on";

impl Worker {
    /// Releases a claim that nobody will ever unprepare, and tells otherwise why it keeps what it has.
    ///
    /// A claim that was deleted by force while its pod ran is gone from the API, and the scheduler gives its cards to
    /// others; yet the pod may go on, and then its cards are not free. So a claim is released only when both say so:
    /// the kubelet has forgotten it ([`is_forgotten`]: no pod of it runs, and no Unprepare will come), and the API knows
    /// it no longer, or no longer with these devices. The caller may hold card locks, and no claim's but its own.
    pub(super) async fn release_if_stale(&self, holder: &Holder) -> Option<Reason> {
        match self.try_release(holder).await {
            Ok(reason) => reason,
            Err(error) => {
                tracing::warn!(holder = %holder, %error, "could not tell whether the holder is stale");
                Some("; it could not be told whether that claim is still in use, see the plugin's log")
            }
        }
    }

    /// See [`Preparer::sweep`](super::Preparer::sweep).
    pub(super) async fn sweep(&self) -> Result<(), PrepareError> {
        self.recover().await?;
        let (journal, cdi) = (self.journal.clone(), self.cdi.clone());
        for holder in blocking::run(move || holders(&journal, &cdi)).await?? {
            // Else someone is working on it.
            if holder.record.as_ref().is_some_and(|record| self.is_prepared(record)) {
                self.release_if_stale(&holder).await;
            }
        }
        Ok(())
    }

    async fn try_release(&self, holder: &Holder) -> Result<Option<Reason>, PrepareError> {
        let Some((claim, record)) = holder.claim().zip(holder.record.as_deref()) else {
            return Ok(Some("; see the plugin's log for what to do"));
        };
        if !self.is_prepared(record) {
            // Of another boot, or left by work that failed and could not be undone: nothing runs with it.
            return self.release(&claim, record).await;
        }
        let still_allocated = match claim::get(&self.client, &claim, self.options.short_patience).await? {
            Found::Gone | Found::Other(_) => false,
            Found::Claim(found) => {
                let (driver, pool) = (&self.options.driver_name, &self.options.pool_name);
                allocated_devices(&found, "", driver, pool)
                    .is_ok_and(|allocated| is_of_allocation(record, &allocated))
            }
        };
        if still_allocated {
            return Ok(Some("; its allocation says so too: the device was given to two claims"));
        }
        let (file_system, kubelet) =
            (self.options.file_system.clone(), self.options.kubelet_directory.clone());
        let (roots, uid) = (self.options.roots.clone(), claim.uid.clone());
        if !blocking::run(move || is_forgotten(&*file_system, &kubelet, &roots, &uid)).await? {
            return Ok(Some(
                "; that claim is deleted or deallocated, but a pod with it may still run on this node: the device is \
                 free when that pod has ended",
            ));
        }
        tracing::warn!(holder = %claim, "releasing a claim that is gone from the API and that the kubelet has forgotten");
        self.release(&claim, record).await
    }

    /// Undoes a claim as long as nobody works on it and it is as it was looked at; else says so.
    ///
    /// The locks of its cards are not taken: the caller may hold some, and of whole cards nothing on the card is undone.
    async fn release(
        &self,
        claim: &ClaimReference,
        record: &ClaimRecord,
    ) -> Result<Option<Reason>, PrepareError> {
        let Some(_claim_lock) = self.locks.try_claim(&claim.uid)? else { return Ok(Some(BUSY)) };
        if self.recorded(&claim.uid).await?.as_ref() != Some(record) {
            return Ok(Some(BUSY));
        }
        self.undo(Operation::Unprepare, &claim.uid).await?;
        Ok(None)
    }
}
