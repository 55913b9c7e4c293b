//! Work on all cards of a claim at once: one thread per card, with the locks of all of them held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_nvml::{CallError, Nvml};

use super::{self as changes, CardPlan, IfHeld, Left, Tools};
use crate::cdi;
use crate::prepare::cards::holder::{Holder, holders, references};
use crate::prepare::cards::worker::Worker;
use crate::prepare::claim::DeviceNeed;
use crate::prepare::{Operation, Phase, PrepareError, blocking};
use tessera_card::CardLocks;
use tessera_journal::{ClaimMps, ClaimRecord, Journal, PartitionInstances, Stage};

/// Partitions and shares made from a claim's plans.
#[derive(Debug, Default)]
pub(in crate::prepare) struct Made {
    /// Partitions, by the ids of their records.
    pub partitions: BTreeMap<String, PartitionInstances>,
    /// MPS shares, by the CDI names of their devices.
    pub shares: BTreeMap<String, ClaimMps>,
}

impl Worker {
    fn tools(&self, nvml: &Arc<dyn Nvml>, locks: &CardLocks) -> Tools {
        Tools {
            _locks: locks.clone(),
            nvml: nvml.clone(),
            journal: self.journal.clone(),
            observer: self.observer.clone(),
            proc: self.options.roots.proc.clone(),
            sharing: self.sharing.clone(),
            look_again: self.options.look_again.clone(),
        }
    }

    /// Ids of the hardware records referenced by claims, except those of one claim.
    pub async fn references(&self, except: Option<&str>) -> Result<BTreeSet<String>, PrepareError> {
        let except = except.map(str::to_owned);
        let references = move |journal: &Journal, cdi: &cdi::Directory| {
            Ok::<_, PrepareError>(references(&holders(journal, cdi)?, journal.boot_id(), except.as_deref()))
        };
        self.disk(references).await
    }

    /// Plans the changes of the cards, all concurrently. The caller holds their locks. `claim` is the
    /// claim's UID, `own` are the ids of hardware records
    /// already referenced by the claim.
    pub async fn plan(
        &self,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        claim: &str,
        needs: &[DeviceNeed],
        own: BTreeSet<String>,
    ) -> Result<Vec<CardPlan>, PrepareError> {
        let mut cards: BTreeMap<PciBusId, Vec<DeviceNeed>> = BTreeMap::new();
        for need in needs {
            // Admin access to a whole card needs no change of the card.
            if need.partition.is_some() || !need.allocated.admin_access {
                cards.entry(need.allocated.device.card()).or_default().push(need.clone());
            }
        }
        let references = Arc::new(self.references(Some(claim)).await?);
        let own = Arc::new(own);
        let plans = cards.into_iter().map(|(card, needs)| {
            let (tools, references, own) = (self.tools(nvml, locks), references.clone(), own.clone());
            self.calls.work(card, move || changes::plan(&tools, card, &needs, &references, &own))
        });
        let mut planned = Vec::new();
        for plan in join_all(plans).await {
            planned.extend(plan??);
        }
        Ok(planned)
    }

    /// Carries out plans whose intents are on the disk: cards concurrently, step by step on each. Shares come last,
    /// because one daemon may serve several cards. Not cancelled: a call of the driver takes effect anyway.
    pub async fn make(
        &self,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        plans: Vec<CardPlan>,
    ) -> Result<Made, PrepareError> {
        let plans: Vec<Arc<CardPlan>> = plans.into_iter().map(Arc::new).collect();
        let makes = plans.iter().map(|plan| {
            let (tools, plan) = (self.tools(nvml, locks), plan.clone());
            self.calls.finish(plan.card, move || changes::make(&tools, &plan))
        });
        let partitions: BTreeMap<String, PartitionInstances> =
            all(join_all(makes).await)?.into_iter().flatten().collect();
        let partitions = Arc::new(partitions);
        let makes = plans.iter().filter(|plan| !plan.shares.is_empty()).map(|plan| {
            let (tools, plan, partitions) = (self.tools(nvml, locks), plan.clone(), partitions.clone());
            self.calls.finish(plan.card, move || changes::make_shares(&tools, &plan, &partitions))
        });
        let shares = all(join_all(makes).await)?.into_iter().flatten().collect();
        Ok(Made { partitions: Arc::unwrap_or_clone(partitions), shares })
    }

    /// Undoes the changes of cards in a claim's record unless another claim refers to them. The caller holds the locks of the
    /// claim and the cards.
    ///
    /// A missing driver or card is no error: changes left by the claim are undone when the driver or card is back.
    pub async fn unmake_claim(
        &self,
        operation: Operation,
        record: &ClaimRecord,
        locks: &CardLocks,
        if_held: IfHeld,
    ) -> Result<(), PrepareError> {
        if record.boot_id != *self.journal.boot_id() {
            return Ok(());
        }
        let mut cards: BTreeMap<PciBusId, Vec<String>> = BTreeMap::new();
        for device in &record.devices {
            cards.entry(device.card).or_default().extend(device.hardware.iter().cloned());
        }
        cards.retain(|_, ids| !ids.is_empty());
        if cards.is_empty() {
            return Ok(());
        }
        if record.stage == Stage::Complete {
            // From here on the claim counts as not prepared, so a recovery undoes the claim.
            let intent = ClaimRecord { stage: Stage::Intent, ..record.clone() };
            let written = self.disk(move |journal, _| journal.put_claim(&intent));
            let written = self.timed(operation, Phase::Journal, written).await;
            if let Err(error) = written {
                // A pod must be able to end even on a full disk, else nothing frees the disk. If the plugin is killed before the
                // end, the claim still counts as prepared, and the kubelet repeats Unprepare.
                tracing::warn!(%error, "cannot write down that the claim is being undone; undoing it all the same");
            }
        }
        let Ok(nvml) = self.nvml() else {
            tracing::warn!(
                "there is no driver now: what the claim has on its cards is undone when it is back"
            );
            return Ok(());
        };
        let references = self.timed(operation, Phase::Journal, self.references(Some(&record.uid))).await?;
        self.lower_limits(record, &references, locks).await;
        for ids in cards.values_mut() {
            ids.retain(|id| !references.contains(id));
        }
        self.timed(operation, Phase::Hardware, self.unmake(&nvml, locks, cards, if_held)).await.map(drop)
    }

    /// Lowers the limits of daemons to the largest needs of the remaining shares, when a claim leaves. The caller holds the
    /// cards' locks. A failure must not delay the end of a pod and is retried later.
    async fn lower_limits(&self, leaving: &ClaimRecord, references: &BTreeSet<String>, locks: &CardLocks) {
        let shares: BTreeSet<&String> = leaving
            .devices
            .iter()
            .filter(|device| device.mps.is_some() && !device.admin_access)
            .map(|device| &device.device)
            .filter(|device| references.contains(*device))
            .collect();
        for device in shares {
            let (journal, sharing) = (self.journal.clone(), self.sharing.clone());
            let (device, claim, locks) = (device.clone(), leaving.uid.clone(), locks.clone());
            let lowered = blocking::run(move || {
                let _locks = locks;
                let Some(record) = journal.hardware_record(&device)? else { return Ok(()) };
                match record.daemon() {
                    Some(change) => sharing.lower_mps(&journal, &device, record.card, &change, &claim),
                    None => Ok(()),
                }
            });
            if let Err(error) = lowered.await.and_then(|lowered| lowered) {
                tracing::warn!(%error, "what an MPS daemon allows is lowered later");
                self.unsettled.notify_one();
            }
        }
    }

    /// Undoes changes of cards possibly made by a claim with an unreadable record, unless another claim refers to them. The
    /// caller holds the locks of the claim and the cards.
    pub async fn unmake_of_spec(
        &self,
        operation: Operation,
        holder: &Holder,
        locks: &CardLocks,
        if_held: IfHeld,
    ) -> Result<(), PrepareError> {
        // Without a driver, unreferenced changes are undone when the driver is back.
        let Ok(nvml) = self.nvml() else { return Ok(()) };
        let references = self.timed(operation, Phase::Journal, self.references(Some(&holder.uid))).await?;
        let mut cards = BTreeMap::new();
        for (card, ids) in holder.hardware_by_card() {
            cards.insert(card, ids.difference(&references).cloned().collect());
        }
        self.timed(operation, Phase::Hardware, self.unmake(&nvml, locks, cards, if_held)).await.map(drop)
    }

    /// Undoes changes of cards. Returns [`Left::Held`] if the driver does not release a partition.
    pub async fn unmake(
        &self,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        cards: BTreeMap<PciBusId, Vec<String>>,
        if_held: IfHeld,
    ) -> Result<Left, PrepareError> {
        let unmakes = cards.into_iter().map(|(card, ids)| {
            let tools = self.tools(nvml, locks);
            async move {
                (card, self.calls.work(card, move || changes::unmake(&tools, card, &ids, if_held)).await)
            }
        });
        let mut failed = None;
        let mut left = Left::Nothing;
        for (card, answer) in join_all(unmakes).await {
            match answer.map_err(PrepareError::from).and_then(|answer| answer) {
                Ok(Left::Nothing) => {}
                Ok(Left::Held) => left = Left::Held,
                Ok(Left::Records) => {
                    tracing::warn!(%card, "the card does not answer: what was made on it is undone when it is back");
                }
                // The partitions are destroyed, and the mode can wait because a monitor with the card open prevents the switch.
                // Claims of partitions need the present mode, and a claim of the whole card switches the mode.
                Err(error @ PrepareError::CardBusy { .. }) => {
                    tracing::warn!(%card, %error, "MIG mode is put back later");
                }
                // A pod must be able to end without mps-host. The records stay, so no other claim gets the card.
                Err(error @ (PrepareError::Mps { .. } | PrepareError::TimeSlice { .. })) => {
                    tracing::warn!(%card, %error, "the card ceases to be shared later");
                    self.unsettled.notify_one();
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(left), Err)
    }

    /// Undoes a card's recorded changes without a claim. The caller holds the card's lock, and no work in flight on any claim
    /// uses the card. Returns [`Left::Held`] if the driver does not release a partition.
    pub async fn unmake_waste(&self, card: PciBusId, locks: &CardLocks) -> Result<Left, PrepareError> {
        let recorded = move |journal: &Journal, _: &cdi::Directory| {
            journal.remove_unfinished_hardware(card)?;
            journal.hardware_of(card)
        };
        let recorded = self.disk(recorded).await?;
        let references = self.references(None).await?;
        let mut waste = Vec::new();
        let mut is_held = false;
        for entry in recorded {
            match entry.record {
                Ok(record) if record.known_change().is_none() => {
                    tracing::error!(id = entry.id, %card, "a hardware record of a kind that this version of the plugin \
                        does not know: it is left as it is. Run the version that wrote it again, or drain the node \
                        before going back");
                }
                Ok(record) if record.boot_id != *self.journal.boot_id() => {
                    // Nothing made in another boot exists any more.
                    self.disk(move |journal, _| journal.remove_hardware_unsynced(&entry.id)).await?;
                }
                Ok(_) if references.contains(&entry.id) => {}
                Ok(record) => {
                    is_held |= record.partition().is_some_and(|partition| partition.not_released);
                    waste.push(entry.id);
                }
                Err(error) if error.is_corrupt() && !references.contains(&entry.id) => {
                    tracing::error!(id = entry.id, %error,
                        "dropping the record; if there is an instance on the card that nobody uses, destroy it by hand");
                    self.disk(move |journal, _| journal.remove_hardware_unsynced(&entry.id)).await?;
                }
                Err(error) => tracing::error!(id = entry.id, %error, "a hardware record can't be read"),
            }
        }
        if waste.is_empty() {
            return Ok(Left::Nothing);
        }
        let nvml = self.nvml()?;
        // Not logged for held partitions, because they are retried all the time.
        if !is_held {
            tracing::info!(%card, ?waste, "undoing what no claim needs");
        }
        self.unmake(&nvml, locks, BTreeMap::from([(card, waste)]), IfHeld::Leave).await
    }
}

/// The answers of all cards, or the first error.
fn all<T>(answers: Vec<Result<Result<T, PrepareError>, CallError>>) -> Result<Vec<T>, PrepareError> {
    answers.into_iter().map(|answer| answer?).collect()
}
