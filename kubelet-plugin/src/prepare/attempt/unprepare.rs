//! Unprepare: takes the claim's lock, reads its record, takes the cards' locks, then removes everything, the record
//! last.

use tessera_card::CardLocks;
use tessera_journal::ClaimRecord;

use super::record::{device_names, held_cards};
use super::steps::{Attempt, LOCK_PATIENCE};
use crate::prepare::cards::{IfHeld, Worker};
use crate::prepare::{Operation, Phase, PrepareError};

impl Attempt<'_> {
    /// One attempt to undo a claim. Needs neither API nor driver, and succeeds for an unknown claim: the kubelet repeats
    /// Unprepare until success, and a pod can't end before. Fails while pods of the claim run.
    pub async fn unprepare(&self) -> Result<(), PrepareError> {
        let _claim_lock = self.claim_lock(self.call.time_left(LOCK_PATIENCE)).await?;
        let uid = self.claim.uid.clone();
        let recorded =
            self.timed(Phase::Journal, self.worker.disk(move |journal, _| journal.claim(&uid))).await;
        let record = match recorded {
            Err(PrepareError::Journal(error)) if error.is_corrupt() => {
                tracing::warn!(%error, "removing the record");
                return self.unprepare_by_spec().await;
            }
            recorded => recorded?,
        };
        if record.as_ref().is_some_and(|record| self.worker.is_prepared(record)) {
            self.refuse_running_pods().await?;
        }
        let cards = record.as_ref().map(held_cards).unwrap_or_default();
        let devices = record.as_ref().map(|record| device_names(record).join(",")).unwrap_or_default();
        let card_locks = self.card_locks(&cards).await?;
        let recorded = record.as_ref().map(|record| (record, &card_locks));
        self.worker.undo(self.operation, &self.claim.uid, recorded, self.if_held).await?;
        tracing::info!(devices, "unprepared");
        Ok(())
    }

    /// Undoes a claim whose record can't be read, by its CDI spec.
    async fn unprepare_by_spec(&self) -> Result<(), PrepareError> {
        let holder = self.worker.holder_of_spec(self.claim).await?;
        let cards = holder.hardware_by_card().into_keys().collect();
        let card_locks = self.card_locks(&cards).await?;
        // First the hardware: a second attempt would need the spec.
        self.worker.unmake_of_spec(self.operation, &holder, &card_locks, self.if_held).await?;
        self.worker.undo(self.operation, &self.claim.uid, None, self.if_held).await?;
        // Daemons may now have to lower their limits to the needs of the remaining shares.
        self.worker.unsettled.notify_one();
        tracing::info!(cards = ?cards, "unprepared");
        Ok(())
    }
}

impl Worker {
    /// Undoes everything of a claim, its record last. The caller holds the claim's lock; `recorded` is its record with the locks
    /// of its cards. `if_held` is the reaction to partitions not released by the driver.
    pub async fn undo(
        &self,
        operation: Operation,
        uid: &str,
        recorded: Option<(&ClaimRecord, &CardLocks)>,
        if_held: IfHeld,
    ) -> Result<(), PrepareError> {
        let claim = uid.to_owned();
        self.timed(operation, Phase::Cdi, self.disk(move |_, cdi| cdi.remove(&claim))).await?;
        if let Some((record, locks)) = recorded {
            self.unmake_claim(operation, record, locks, if_held).await?;
        }
        let claim = uid.to_owned();
        self.timed(operation, Phase::Journal, self.disk(move |journal, _| journal.remove_claim(&claim)))
            .await?;
        self.unreleased.forget(uid);
        // Sending fails harmlessly without waiting work.
        let _ = self.released.send(uid.into());
        Ok(())
    }
}
