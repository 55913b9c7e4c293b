//! Makes journal, CDI directory and cards agree at a start, and releases forgotten claims later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tessera_api::PciBusId;

use crate::cdi;
use crate::prepare::attempt::{device_names, held_cards};
use crate::prepare::cards::{IfHeld, Worker, holders};
use crate::prepare::{Operation, PrepareError};
use tessera_journal::{ClaimRecord, Journal, JournalError, Stage};

/// Longest wait at a start for a card in use by another instance. The rest is left to the claim's next Prepare or Unprepare.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

impl Worker {
    /// Makes disk, CDI directory and cards agree with the journal's complete records of this boot: undoes interrupted work, drops
    /// devices prepared by an earlier boot, removes CDI specs without a claim, destroys partitions without a claim. Skips claims
    /// locked by another instance. Called again when the driver is there, for the work in need of the driver.
    pub async fn recover(&self) -> Result<(), PrepareError> {
        let known = |journal: &Journal, cdi: &cdi::Directory| {
            let mut claims: BTreeSet<String> = journal.claims()?.into_iter().map(|entry| entry.id).collect();
            claims.extend(journal.unfinished_claims()?);
            claims.extend(cdi.claims()?.into_iter().map(|file| file.uid));
            Ok::<_, PrepareError>(claims)
        };
        let claims = self.disk(known).await?;
        // Claims concurrently, because destroying partitions takes seconds; each card does one step at a time.
        let recovered = claims.iter().map(|uid| async move {
            // An error with one claim must not stop the others.
            if let Err(error) = self.recover_claim(uid).await {
                tracing::error!(uid, %error, "could not recover a claim");
            }
        });
        join_all(recovered).await;

        let cards = self.disk(|journal, _| journal.cards_with_hardware()).await?;
        let recovered = cards.into_iter().map(|card| async move {
            match self.recover_card(card).await {
                Ok(()) => {}
                Err(PrepareError::NoDriver { .. }) => {
                    tracing::info!(%card, "what no claim needs on the card is undone when the driver is there");
                }
                Err(error) => tracing::error!(%card, %error, "could not undo what no claim needs on the card"),
            }
        });
        join_all(recovered).await;
        Ok(())
    }

    /// See [`Preparer::sweep`](crate::prepare::Preparer::sweep).
    pub async fn sweep(&self) -> Result<(), PrepareError> {
        self.recover().await?;
        for holder in self.disk(holders).await? {
            // Otherwise work on the claim is in flight.
            if holder.record.as_ref().is_some_and(|record| self.is_prepared(record)) {
                self.release_if_stale(&holder, &BTreeSet::new()).await;
            }
        }
        Ok(())
    }

    async fn recover_card(&self, card: PciBusId) -> Result<(), PrepareError> {
        let card_lock = tokio::time::timeout(LONGEST_WAIT, self.locks.cards(&BTreeSet::from([card]))).await;
        let Ok(card_lock) = card_lock else {
            tracing::info!(%card, "someone works on the card: it is looked at later");
            return Ok(());
        };
        self.unmake_waste(card, &Arc::new(card_lock?)).await.map(drop)
    }

    /// Retries destroying the partitions not released by the driver.
    pub async fn release_held(&self) -> Result<(), PrepareError> {
        let held = |journal: &Journal, _: &cdi::Directory| {
            let records = journal.hardware()?.into_iter().filter_map(|entry| entry.record.ok());
            let held =
                records.filter(|record| record.partition().is_some_and(|partition| partition.not_released));
            Ok::<_, JournalError>(held.map(|record| record.card).collect::<BTreeSet<_>>())
        };
        for card in self.disk(held).await? {
            if let Err(error) = self.recover_card(card).await {
                tracing::debug!(%card, %error, "a partition is still not let go");
            }
        }
        Ok(())
    }

    async fn recover_claim(&self, uid: &str) -> Result<(), PrepareError> {
        let Some(_claim_lock) = self.locks.try_claim(uid)? else { return Ok(()) };
        let claim = uid.to_owned();
        let read = move |journal: &Journal, cdi: &cdi::Directory| {
            journal.remove_unfinished_claim(&claim)?;
            cdi.remove_unfinished(&claim)?;
            Ok::<_, PrepareError>(journal.claim(&claim))
        };
        let recorded = self.disk(read).await?;
        match recorded {
            Ok(Some(record)) if self.is_prepared(&record) => Ok(()),
            Ok(Some(record)) => self.roll_back(&record).await,
            Ok(None) => {
                tracing::info!(uid, "removing the CDI spec of a claim that is not prepared");
                self.undo(Operation::Unprepare, uid, None, IfHeld::Leave).await
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
        self.undo(Operation::Unprepare, &record.uid, Some((record, &locks)), IfHeld::Leave).await
    }

    /// Handles an unreadable record. With a CDI spec the claim's containers may run, so its devices stay held. Without a CDI spec
    /// there is nothing to hold.
    async fn keep_or_drop(&self, uid: &str, error: &JournalError) -> Result<(), PrepareError> {
        let claim = uid.to_owned();
        if self.disk(move |_, cdi| cdi.read(&claim)).await?.is_some() {
            tracing::error!(uid, %error, "a claim's record is damaged; its devices are kept from other claims");
            return Ok(());
        }
        tracing::warn!(uid, %error, "dropping a damaged record: nothing of its claim is left on this node");
        self.undo(Operation::Unprepare, uid, None, IfHeld::Leave).await
    }
}
