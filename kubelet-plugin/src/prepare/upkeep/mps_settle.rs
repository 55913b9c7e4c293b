//! Makes mps-host's daemons agree with the journal, for failed changes or changes made during an absence of mps-host.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::PciBusId;

use super::look_after::in_time;
use crate::prepare::cards::Worker;
use crate::prepare::{PrepareError, blocking};
use tessera_card::CardLocks;
use tessera_journal::{HardwareRecord, Journal};

use crate::cdi;
use tessera_kube_util::backoff::Backoff;
use tessera_mps_host::protocol::Daemon;

/// First and longest pause before trying again to settle.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Longest wait for the locks of a busy card.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

impl Worker {
    /// Settles daemons when notified: mps-host is back, a daemon was restarted, or one could not be ended or changed.
    /// Runs until dropped.
    pub async fn settle_when_needed(&self) {
        loop {
            self.unsettled.notified().await;
            let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            loop {
                let mut is_settled = false;
                let settled = async {
                    is_settled = self.settle().await?;
                    Ok(())
                };
                match in_time(settled).await {
                    Ok(()) if is_settled => break,
                    Ok(()) => {}
                    Err(error) => tracing::warn!(%error, "cannot settle MPS daemons; trying again"),
                }
                backoff.sleep().await;
            }
        }
    }

    /// Ends daemons no longer shared by any claim, starts or changes shared daemons with wrong settings, and updates the claims'
    /// CDI specs. Returns whether nothing is left to do. Without mps-host nothing can be done; its return triggers another try.
    async fn settle(&self) -> Result<bool, PrepareError> {
        let cards = self.cards_with_daemons().await?;
        if cards.is_empty() {
            return Ok(true);
        }
        let daemons = match self.sharing.mps_daemons().await {
            Ok(daemons) => Arc::new(daemons),
            Err(error) => {
                tracing::debug!(%error, "MPS daemons are settled when mps-host is back");
                return Ok(true);
            }
        };
        let mut is_settled = true;
        for card in cards {
            let only = BTreeSet::from([card]);
            let Ok(locks) = tokio::time::timeout(LOCK_PATIENCE, self.locks.cards(&only)).await else {
                is_settled = false;
                continue;
            };
            match self.settle_card(card, &Arc::new(locks?), daemons.clone()).await {
                Ok(done) => is_settled &= done,
                // Undone when the driver is there; until then another try is pointless.
                Err(PrepareError::NoDriver { .. }) => {}
                Err(error) => {
                    tracing::warn!(%card, %error, "cannot settle the MPS daemon of a card; trying again");
                    is_settled = false;
                }
            }
        }
        // A daemon of a single claim is recreated together with all other losses of the claim.
        self.repair().await?;
        match self.restore_specs().await {
            // Without a driver, specs are written when there is one.
            Ok(()) | Err(PrepareError::NoDriver { .. }) => Ok(is_settled),
            Err(error) => Err(error),
        }
    }

    async fn settle_card(
        &self,
        card: PciBusId,
        locks: &CardLocks,
        daemons: Arc<Vec<Daemon>>,
    ) -> Result<bool, PrepareError> {
        self.unmake_waste(card, locks).await?;
        let references = self.references(None).await?;
        let (journal, sharing, locks) = (self.journal.clone(), self.sharing.clone(), locks.clone());
        blocking::run(move || {
            let _locks = locks;
            let mut is_settled = true;
            for entry in journal.hardware_of(card)? {
                let Ok(record) = entry.record else { continue };
                let Some(daemon) = record.daemon() else { continue };
                if !references.contains(&record.id) {
                    // The daemon could not be ended just now.
                    is_settled = false;
                } else if daemon.owner.is_none() {
                    sharing.settle_mps(&journal, &record.id, card, &daemon, &daemons)?;
                }
            }
            Ok(is_settled)
        })
        .await?
    }

    async fn cards_with_daemons(&self) -> Result<BTreeSet<PciBusId>, PrepareError> {
        let cards = |journal: &Journal, _: &cdi::Directory| {
            let boot = journal.boot_id();
            let is_daemon = |record: &HardwareRecord| record.boot_id == *boot && record.daemon().is_some();
            let records = journal.hardware()?.into_iter().filter_map(|entry| entry.record.ok());
            Ok::<_, PrepareError>(records.filter(is_daemon).map(|record| record.card).collect())
        };
        self.disk(cards).await
    }

    /// Whether any card is shared by MPS, by the journal.
    pub async fn shares_by_mps(&self) -> bool {
        self.cards_with_daemons().await.is_ok_and(|cards| !cards.is_empty())
    }
}
