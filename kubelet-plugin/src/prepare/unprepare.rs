use std::collections::BTreeSet;

use super::call::Call;
use super::worker::{LOCK_PATIENCE, Worker, device_names, held_cards};
use super::{ClaimReference, Operation, Phase, PrepareError, blocking};

impl Worker {
    /// Undoes a claim. Needs neither API nor driver, and succeeds for a claim that is not known: the kubelet asks again
    /// until it does, and a pod can't end before.
    pub(super) async fn unprepare(&self, claim: &ClaimReference, call: &Call) -> Result<(), PrepareError> {
        let operation = Operation::Unprepare;
        let _claim_lock = self.claim_lock(operation, &claim.uid, call, call.time_left(LOCK_PATIENCE)).await?;
        let (journal, uid) = (self.journal.clone(), claim.uid.clone());
        let recorded = async { blocking::run(move || journal.claim(&uid)).await };
        let (cards, devices) = match self.timed(operation, Phase::Journal, recorded).await? {
            Ok(Some(record)) => {
                let devices = device_names(&record).join(",");
                (held_cards(&record), devices)
            }
            Ok(None) => (BTreeSet::new(), String::new()),
            Err(error) if error.is_corrupt() => {
                tracing::warn!(%error, "removing the record");
                (BTreeSet::new(), String::new())
            }
            Err(error) => return Err(error.into()),
        };
        let _card_locks = self.card_locks(operation, &cards, call, call.time_left(LOCK_PATIENCE)).await?;
        self.undo(operation, &claim.uid).await?;
        tracing::info!(devices, "unprepared");
        Ok(())
    }
}
