use super::call::Call;
use super::holder::Holder;
use super::worker::{LOCK_PATIENCE, Worker, device_names, held_cards};
use super::{ClaimReference, Operation, Phase, PrepareError, blocking};

impl Worker {
    /// One attempt to undo a claim. Needs neither API nor driver, and succeeds for a claim that is not known: the kubelet
    /// asks again until it does, and a pod can't end before.
    pub(super) async fn unprepare(&self, claim: &ClaimReference, call: &Call) -> Result<(), PrepareError> {
        let operation = Operation::Unprepare;
        let _claim_lock = self.claim_lock(operation, &claim.uid, call, call.time_left(LOCK_PATIENCE)).await?;
        let (journal, uid) = (self.journal.clone(), claim.uid.clone());
        let recorded = async { blocking::run(move || journal.claim(&uid)).await };
        let record = match self.timed(operation, Phase::Journal, recorded).await? {
            Ok(record) => record,
            Err(error) if error.is_corrupt() => {
                tracing::warn!(%error, "removing the record");
                return self.unprepare_by_spec(claim, call).await;
            }
            Err(error) => return Err(error.into()),
        };
        let cards = record.as_ref().map(held_cards).unwrap_or_default();
        let devices = record.as_ref().map(|record| device_names(record).join(",")).unwrap_or_default();
        let card_locks = self.card_locks(operation, claim, &cards, call).await?;
        let recorded = record.as_ref().map(|record| (record, &card_locks));
        self.undo(operation, &claim.uid, recorded).await?;
        tracing::info!(devices, "unprepared");
        Ok(())
    }

    /// Undoes a claim whose record can't be read: what it has is known from its CDI spec.
    async fn unprepare_by_spec(&self, claim: &ClaimReference, call: &Call) -> Result<(), PrepareError> {
        let operation = Operation::Unprepare;
        let (cdi, uid) = (self.cdi.clone(), claim.uid.clone());
        let holder = blocking::run(move || Holder::of_spec(&cdi, &uid)).await?;
        let cards = holder.hardware_by_card().into_keys().collect();
        let card_locks = self.card_locks(operation, claim, &cards, call).await?;
        // Before the spec, which a second attempt needs.
        self.unmake_of_spec(operation, &holder, &card_locks).await?;
        self.undo(operation, &claim.uid, None).await?;
        // What daemons allow to the shares that go on may be less now.
        self.unsettled.notify_one();
        tracing::info!(cards = ?cards, "unprepared");
        Ok(())
    }
}
