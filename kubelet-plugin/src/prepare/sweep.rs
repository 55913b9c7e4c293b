use super::allocation::{allocated_devices, is_of_allocation};
use super::claim::{self, Found, SHORT_PATIENCE};
use super::forgotten::is_forgotten;
use super::holder::{Holder, holders};
use super::worker::Worker;
use super::{Operation, PrepareError, blocking};

impl Worker {
    /// Releases a claim that nobody will ever unprepare, and tells otherwise why it keeps what it has.
    ///
    /// A claim that was deleted by force while its pod ran is gone from the API, and the scheduler gives its cards to
    /// others; yet the pod may go on, and then its cards are not free. So a claim is released only when both say so:
    /// the kubelet has forgotten it ([`is_forgotten`]: no pod of it runs, and no Unprepare will come), and the API knows
    /// it no longer, or no longer with these devices. The caller may hold card locks, and no claim's but its own.
    pub(super) async fn release_if_stale(&self, holder: &Holder) -> Option<&'static str> {
        match self.try_release(holder).await {
            Ok(note) => note,
            Err(error) => {
                tracing::warn!(holder = %holder, %error, "could not tell whether the holder is stale");
                Some("; it could not be told whether that claim is still in use, see the plugin's log")
            }
        }
    }

    /// Looks at all claims and releases those that nobody will ever unprepare.
    pub(super) async fn sweep(&self) -> Result<(), PrepareError> {
        let (journal, cdi) = (self.journal.clone(), self.cdi.clone());
        for holder in blocking::run(move || holders(&journal, &cdi)).await?? {
            // An intent is someone's work in progress, or is undone at the next start.
            if holder.record.as_ref().is_some_and(|record| self.is_prepared(record)) {
                self.release_if_stale(&holder).await;
            }
        }
        Ok(())
    }

    async fn try_release(&self, holder: &Holder) -> Result<Option<&'static str>, PrepareError> {
        let Some((claim, record)) = holder.claim().zip(holder.record.as_ref()) else {
            return Ok(Some("; see the plugin's log for what to do"));
        };
        let (file_system, kubelet, uid) =
            (self.options.file_system.clone(), self.options.kubelet_directory.clone(), claim.uid.clone());
        let forgotten = blocking::run(move || is_forgotten(&*file_system, &kubelet, &uid)).await?;
        let still_allocated = match claim::get(&self.client, &claim, SHORT_PATIENCE).await? {
            Found::Gone | Found::Other(_) => false,
            Found::Claim(found) => {
                let (driver, pool) = (&self.options.driver_name, &self.options.pool_name);
                allocated_devices(&found, "", driver, pool)
                    .is_ok_and(|allocated| is_of_allocation(record, &allocated))
            }
        };
        match (still_allocated, forgotten) {
            (true, _) => return Ok(Some("; its allocation says so too: the device was given to two claims")),
            (false, false) => {
                return Ok(Some(
                    "; that claim is deleted or deallocated, but a pod with it may still run on this node: the device \
                     is free when that pod has ended",
                ));
            }
            (false, true) => {}
        }
        let Some(_claim_lock) = self.locks.try_claim(&claim.uid)? else {
            return Ok(Some("; that claim is being worked on"));
        };
        // Prepared anew since it was looked at?
        if self.recorded(&claim.uid).await?.as_ref() != Some(record) {
            return Ok(Some("; that claim is being worked on"));
        }
        tracing::warn!(holder = %claim, "releasing a claim that is gone from the API and that the kubelet has forgotten");
        self.undo(Operation::Unprepare, &claim.uid).await?;
        Ok(None)
    }
}
