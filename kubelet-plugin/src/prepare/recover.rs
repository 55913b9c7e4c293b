use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tessera_api::PciBusId;

use super::worker::{Worker, device_names, held_cards, spec_devices};
use super::{Operation, PrepareError, blocking};
use crate::cdi;
use tessera_journal::{ClaimRecord, JournalError, Stage};

/// Longest wait at a start for a card that another instance works on. What is not undone then is undone by the claim's
/// next Prepare or Unprepare.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

impl Worker {
    /// Makes disk, CDI directory and cards agree with the journal's complete records of this boot: work that was cut off
    /// is undone, what an earlier boot prepared is dropped, CDI specs of no claim are removed, partitions that no claim
    /// needs destroyed. Claims that another instance is working on are left to it. What needs the driver is done when it
    /// is there: this is called again then.
    pub(super) async fn recover(&self) -> Result<(), PrepareError> {
        let (journal, cdi) = (self.journal.clone(), self.cdi.clone());
        let claims = blocking::run(move || -> Result<BTreeSet<String>, PrepareError> {
            let mut claims: BTreeSet<String> = journal.claims()?.into_iter().map(|entry| entry.id).collect();
            claims.extend(journal.unfinished_claims()?);
            claims.extend(cdi.claims()?.into_iter().map(|file| file.uid));
            Ok(claims)
        })
        .await??;
        // Side by side, for destroying partitions takes seconds: but one after the other on each card.
        let recovered = claims.iter().map(|uid| async move {
            // One claim's trouble is not the others'.
            if let Err(error) = self.recover_claim(uid).await {
                tracing::error!(uid, %error, "could not recover a claim");
            }
        });
        join_all(recovered).await;

        let journal = self.journal.clone();
        let cards = blocking::run(move || journal.cards_with_hardware()).await??;
        let recovered = cards.into_iter().map(|card| async move {
            match self.recover_card(card).await {
                Ok(()) => {}
                Err(PrepareError::NoDriver) => {
                    tracing::info!(%card, "what no claim needs on the card is undone when the driver is there");
                }
                Err(error) => tracing::error!(%card, %error, "could not undo what no claim needs on the card"),
            }
        });
        join_all(recovered).await;
        Ok(())
    }

    async fn recover_card(&self, card: PciBusId) -> Result<(), PrepareError> {
        let card_lock = tokio::time::timeout(LONGEST_WAIT, self.locks.cards(&BTreeSet::from([card]))).await;
        let Ok(card_lock) = card_lock else {
            tracing::info!(%card, "someone works on the card: it is looked at later");
            return Ok(());
        };
        self.unmake_waste(card, &Arc::new(card_lock?)).await
    }

    async fn recover_claim(&self, uid: &str) -> Result<(), PrepareError> {
        let Some(_claim_lock) = self.locks.try_claim(uid)? else { return Ok(()) };
        let (journal, cdi, claim) = (self.journal.clone(), self.cdi.clone(), uid.to_owned());
        let recorded = blocking::run(move || -> Result<_, PrepareError> {
            journal.remove_unfinished_claim(&claim)?;
            cdi.remove_unfinished(&claim)?;
            Ok(journal.claim(&claim))
        })
        .await??;
        match recorded {
            Ok(Some(record)) if self.is_prepared(&record) => Ok(()),
            Ok(Some(record)) => self.roll_back(&record).await,
            Ok(None) => {
                tracing::info!(uid, "removing the CDI spec of a claim that is not prepared");
                self.undo(Operation::Unprepare, uid, None).await
            }
            Err(error) if error.is_corrupt() => self.keep_or_drop(uid, &error).await,
            Err(error) => {
                tracing::error!(uid, %error, "the claim is left as it is");
                Ok(())
            }
        }
    }

    async fn roll_back(&self, record: &ClaimRecord) -> Result<(), PrepareError> {
        let cards = held_cards(record);
        let Ok(locks) = tokio::time::timeout(LONGEST_WAIT, self.locks.cards(&cards)).await else {
            tracing::warn!(
                uid = record.uid,
                "another instance works on the claim's cards: it is recovered later"
            );
            return Ok(());
        };
        let locks = Arc::new(locks?);
        let why = match record.stage {
            Stage::Intent => "it was cut off",
            Stage::Complete => "it was prepared before the node was started again",
        };
        tracing::info!(namespace = record.namespace, name = record.name, uid = record.uid,
            devices = ?device_names(record), why, "undoing a claim");
        self.undo(Operation::Unprepare, &record.uid, Some((record, &locks))).await
    }

    /// A record that can't be understood: as long as the claim has a CDI spec its containers may run, and what they use
    /// is kept from others. Without a spec there is nothing to keep.
    async fn keep_or_drop(&self, uid: &str, error: &JournalError) -> Result<(), PrepareError> {
        let (cdi, claim) = (self.cdi.clone(), uid.to_owned());
        if blocking::run(move || cdi.read(&claim)).await??.is_some() {
            tracing::error!(uid, %error, "a claim's record is damaged; its devices are kept from other claims");
            return Ok(());
        }
        tracing::warn!(uid, %error, "dropping a damaged record: nothing of its claim is left on this node");
        self.undo(Operation::Unprepare, uid, None).await
    }

    /// See [`Preparer::restore_specs`](super::Preparer::restore_specs).
    pub(super) async fn restore_specs(&self) -> Result<(), PrepareError> {
        let nvml = self.nvml()?;
        let files = self.files.of(&nvml, &self.calls, &self.options).await?;
        let journal = self.journal.clone();
        for entry in blocking::run(move || journal.claims()).await?? {
            // Whoever works on a claim writes its spec.
            let Some(_claim_lock) = self.locks.try_claim(&entry.id)? else { continue };
            let Some(mut record) = self.recorded(&entry.id).await?.filter(|record| self.is_prepared(record))
            else {
                continue;
            };
            match self.with_present_minors(&record).await {
                Ok(numbered) => record = numbered,
                Err(error @ PrepareError::OtherCard { .. }) => {
                    tracing::error!(uid = record.uid, %error, "a prepared claim's card was replaced");
                    continue;
                }
                Err(error) => return Err(error),
            }
            let (journal, sharing) = (self.journal.clone(), self.sharing.clone());
            record = blocking::run(move || {
                if sharing.follow_static_partitions(&mut record) {
                    tracing::info!(uid = record.uid, "its static partitions have other names now");
                    journal.put_claim(&record)?;
                }
                Ok::<_, PrepareError>(record)
            })
            .await??;
            // One claim's trouble is not the others'.
            match self.restore_spec(&record, files.clone()).await {
                Err(error @ (PrepareError::Capability { .. } | PrepareError::NoPartition { .. })) => {
                    tracing::error!(uid = record.uid, %error, "cannot tell a prepared claim's CDI spec");
                }
                restored => restored?,
            }
        }
        Ok(())
    }

    async fn restore_spec(
        &self,
        record: &ClaimRecord,
        files: Arc<cdi::DriverFiles>,
    ) -> Result<(), PrepareError> {
        let (cdi, roots, claim) = (self.cdi.clone(), self.options.roots.clone(), record.clone());
        let is_right = blocking::run(move || -> Result<bool, PrepareError> {
            let (uid, devices) = (&claim.uid, spec_devices(&claim, &roots)?);
            let spec = cdi::claim_spec(cdi.vendor(), &roots, &devices, &files.present(&roots));
            if cdi.read(uid)?.as_ref() == Some(&spec) {
                return Ok(true);
            }
            cdi.write(uid, &spec)?;
            Ok(false)
        })
        .await??;
        if !is_right {
            tracing::info!(uid = record.uid, "wrote the CDI spec of a prepared claim again");
        }
        Ok(())
    }
}
