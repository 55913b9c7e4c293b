//! One attempt at a claim: the ten steps of Prepare, and the steps of Unprepare in [`unprepare`](super::unprepare).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::PciBusId;
use tessera_card::CardLocks;
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_journal::{ClaimRecord, HardwareRecord, Journal, Stage};
use tessera_nvml::Nvml;

use super::call::Call;
use super::metadata::has_metadata;
use super::record::{answer, device_names, held_cards};
use crate::cdi::{self, DriverFiles};
use crate::prepare::cards::{CardPlan, IfHeld, Worker, unified_memory};
use crate::prepare::claim::{
    AllocatedDevice, DeviceNeed, Found, allocated_devices, api, is_of_allocation, needs,
};
use crate::prepare::{Operation, Phase, PrepareError};

/// How long one attempt waits for the lock of its claim, and at least for its cards' locks.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// One attempt. Waits for locks only briefly. Waiting for passing obstacles happens between attempts, with no lock held
/// ([`retries`](super::retries)).
pub(in crate::prepare) struct Attempt<'a> {
    pub worker: &'a Worker,
    pub operation: Operation,
    pub claim: &'a ClaimReference,
    pub call: &'a Call,
    /// Unprepare's reaction to partitions not released by the driver.
    pub if_held: IfHeld,
}

impl Attempt<'_> {
    /// Prepares or unprepares the claim. Returns the prepared devices; none for Unprepare.
    pub async fn run(&self) -> Result<Vec<PreparedDevice>, PrepareError> {
        match self.operation {
            Operation::Prepare => self.prepare().await,
            Operation::Unprepare => self.unprepare().await.map(|()| Vec::new()),
        }
    }

    /// Prepares the claim, or repeats the answer of an earlier call.
    async fn prepare(&self) -> Result<Vec<PreparedDevice>, PrepareError> {
        let worker = self.worker;
        // Step 1: the claim's lock.
        let _claim_lock = self.claim_lock(LOCK_PATIENCE).await?;
        let recorded = self.timed(Phase::Journal, worker.record_or_damage(&self.claim.uid)).await?;
        let is_damaged = recorded.is_err();
        let recorded = recorded.unwrap_or_default();
        let complete = recorded.as_ref().filter(|record| worker.is_prepared(record));

        // Step 2: the claim.
        let options = &worker.options;
        let patience = if complete.is_some() { options.short_patience } else { options.patience };
        let patience = patience.min(self.call.time_left(options.short_patience));
        let allocated = self.call.unless_ended(self.allocation(patience));
        let allocated = self.timed(Phase::Claim, allocated).await;
        match (complete, allocated) {
            // Prepared in this boot and the API server is unreachable: the kubelet has checked the claim's UID
            // itself.
            (Some(record), Err(error @ PrepareError::Api { .. })) => {
                tracing::warn!(%error, "answering from the journal");
                self.tell_again(record).await
            }
            (_, Err(error)) => Err(error),
            (Some(record), Ok(allocated)) if is_of_allocation(record, &allocated) => {
                let missing = self.timed(Phase::Hardware, worker.missing(record)).await?;
                if missing.is_empty() {
                    let numbered = self.timed(Phase::Hardware, worker.with_present_minors(record)).await?;
                    return self.tell_again(&numbered).await;
                }
                self.make_again(Some(record), &allocated, &missing).await
            }
            (_, Ok(allocated)) if is_damaged && worker.is_in_spec(self.claim, &allocated).await? => {
                let all = allocated.iter().map(|device| device.cdi_name.clone()).collect();
                self.make_again(None, &allocated, &all).await
            }
            (_, Ok(allocated)) => self.prepare_anew(recorded.as_ref(), &allocated).await,
        }
    }

    /// Prepares an allocation. `recorded` is the rest of an earlier attempt, boot or allocation of the claim.
    async fn prepare_anew(
        &self,
        recorded: Option<&ClaimRecord>,
        allocated: &[AllocatedDevice],
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let worker = self.worker;
        let files = self.driver_files(&worker.nvml()?).await?;
        let module = self.call.unless_ended(unified_memory::load(&worker.options));
        self.timed(Phase::DriverFiles, module).await?;

        // Step 3: the cards' locks.
        let mut cards: BTreeSet<PciBusId> = recorded.map(held_cards).unwrap_or_default();
        cards.extend(
            allocated.iter().filter(|device| !device.admin_access).map(|device| device.device.card()),
        );
        let since = Instant::now();
        let locks = self.card_locks(&cards).await?;
        // No handle is kept while waiting for the cards: a reset of a card requires the library to be closed everywhere.
        let nvml = worker.nvml()?;
        if since.elapsed() > LOCK_PATIENCE {
            // The claim may have changed while we waited.
            self.still_allocated(allocated).await?;
        }
        if let Some(record) = recorded {
            tracing::info!(stage = ?record.stage, boot = %record.boot_id, "undoing what an earlier attempt left");
            let left = Some((record, &locks));
            worker.undo(self.operation, &self.claim.uid, left, IfHeld::Wait).await?;
        }

        // Steps 4 and 5: needs and conflicts. Step 6: the plan.
        let needs = self.needs(&nvml, allocated, &cards).await?;
        let plans = worker.plan(&nvml, &locks, &self.claim.uid, &needs, BTreeSet::new());
        let plans = self.timed(Phase::Hardware, plans).await?;

        let mut record =
            self.worker.intent(self.claim, self.call.pods(), self.call.metadata(), &needs, &plans);
        if let Err(error) = self.make_real(&mut record, &nvml, &locks, plans, files).await {
            record.stage = Stage::Intent;
            let made = Some((&record, &locks));
            if let Err(undo) = worker.undo(self.operation, &self.claim.uid, made, IfHeld::Wait).await {
                tracing::warn!(error = %undo,
                    "could not undo the failed attempt; the next Prepare, Unprepare or start of the plugin will");
            }
            return Err(error);
        }
        let pods: Vec<String> = self.call.consumers().into_iter().filter_map(|pod| pod.name).collect();
        tracing::info!(?pods, devices = ?device_names(&record), "prepared");
        Ok(answer(worker.cdi.vendor(), &record))
    }

    /// Intents, effects, completion. The order must hold, whatever is added in between.
    async fn make_real(
        &self,
        record: &mut ClaimRecord,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        plans: Vec<CardPlan>,
        files: Arc<DriverFiles>,
    ) -> Result<(), PrepareError> {
        // Step 7: intents. A card used without changes needs none: an interrupted attempt leaves only a CDI spec without a
        // record, removed at the next start.
        if record.devices.iter().any(|device| !device.hardware.is_empty()) {
            let intent = record.clone();
            let put = self.worker.disk(move |journal, _| journal.put_claim(&intent));
            self.timed(Phase::Journal, put).await?;
        }
        // Step 8: hardware. Steps 9 and 10: the CDI spec, and the complete record.
        self.make_hardware(record, nvml, locks, plans).await?;
        *record = self.worker.complete(record.clone(), files).await?;
        Ok(())
    }

    /// Writes the intents of plans to the disk, with one sync for all, and carries the plans out. Notes the results in the
    /// record.
    pub async fn make_hardware(
        &self,
        record: &mut ClaimRecord,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        plans: Vec<CardPlan>,
    ) -> Result<(), PrepareError> {
        if !plans.iter().any(CardPlan::has_work) {
            return Ok(());
        }
        let intents: Vec<&HardwareRecord> = plans.iter().flat_map(CardPlan::intents).collect();
        if !intents.is_empty() {
            self.timed(Phase::Sync, self.worker.journal.put_hardware(&intents)).await?;
        }
        let made = self.timed(Phase::Hardware, self.worker.make(nvml, locks, plans)).await?;
        for device in &mut record.devices {
            let Some(partition) = &mut device.partition else { continue };
            if let Some(instances) = device.hardware.iter().find_map(|id| made.partitions.get(id)) {
                partition.instances = Some(instances.clone());
            }
        }
        // A device that the claim has twice, once with adminAccess, has one CDI name.
        for device in record.devices.iter_mut().filter(|device| !device.admin_access) {
            if let Some(mps) = made.shares.get(device.cdi_name()) {
                device.mps = Some(mps.clone());
            }
        }
        Ok(())
    }

    /// The answer of an earlier Prepare. Restores the claim's CDI spec if removed.
    async fn tell_again(&self, record: &ClaimRecord) -> Result<Vec<PreparedDevice>, PrepareError> {
        let known = record.clone();
        let is_there = move |_: &Journal, cdi: &cdi::Directory| {
            Ok::<_, PrepareError>(cdi.read(&known.uid)?.is_some() && has_metadata(cdi, &known)?)
        };
        if !self.timed(Phase::Cdi, self.worker.disk(is_there)).await? {
            let files = self.driver_files(&self.worker.nvml()?).await?;
            tracing::warn!("the CDI spec of the prepared claim was gone: writing it again");
            self.timed(Phase::Cdi, self.worker.write_spec(record, files)).await?;
        }
        Ok(answer(self.worker.cdi.vendor(), record))
    }

    /// The devices of this driver allocated to the claim in the API.
    async fn allocation(&self, patience: Duration) -> Result<Vec<AllocatedDevice>, PrepareError> {
        let (worker, name) = (self.worker, self.claim.to_string());
        match api::get(&worker.client, self.claim, patience).await? {
            Found::Gone => Err(PrepareError::Gone { claim: name }),
            Found::Other(found) => Err(PrepareError::Replaced { claim: name, found }),
            Found::Claim(found) => {
                let found: Arc<ResourceClaim> = found.into();
                self.call.set_found(found.clone());
                allocated_devices(&found, &name, &worker.options.driver_name, &worker.options.pool_name)
            }
        }
    }

    /// Checks the allocation in the API against the one read before a wait.
    async fn still_allocated(&self, allocated: &[AllocatedDevice]) -> Result<(), PrepareError> {
        let now = self.call.unless_ended(self.allocation(self.worker.options.short_patience));
        if self.timed(Phase::Claim, now).await? == allocated {
            return Ok(());
        }
        Err(PrepareError::Busy { what: "the claim", longest: Duration::ZERO })
    }

    /// The driver's files, added to containers by the CDI spec.
    pub async fn driver_files(&self, nvml: &Arc<dyn Nvml>) -> Result<Arc<DriverFiles>, PrepareError> {
        let worker = self.worker;
        let files = self.call.unless_ended(worker.files.of(nvml, &worker.calls, &worker.options));
        self.timed(Phase::DriverFiles, files).await
    }

    /// The allocation's needs of its cards. Fails if another claim holds any of the devices. `cards` are the cards with locks
    /// held.
    pub async fn needs(
        &self,
        nvml: &Arc<dyn Nvml>,
        allocated: &[AllocatedDevice],
        cards: &BTreeSet<PciBusId>,
    ) -> Result<Vec<DeviceNeed>, PrepareError> {
        let worker = self.worker;
        let published = worker.published.borrow().clone();
        let look = || {
            let needs = needs(
                nvml,
                &worker.calls,
                &worker.profiles,
                published.as_deref(),
                self.claim,
                &worker.options.driver_name,
                allocated,
            );
            self.timed(Phase::Hardware, self.call.unless_ended(needs))
        };
        let needs = look().await?;
        self.refuse_other_cards(&needs)?;
        if self.timed(Phase::Journal, self.refuse_conflicts(&needs, cards)).await? {
            // Releasing a stale claim changed cards.
            return look().await;
        }
        Ok(needs)
    }

    /// Fails if a card came into its place after the claim's devices were allocated. Skipped without allocation time or
    /// card history: repairs compare with the claim's record.
    fn refuse_other_cards(&self, needs: &[DeviceNeed]) -> Result<(), PrepareError> {
        let found = self.call.found();
        let allocated = found.as_deref().and_then(api::allocated_at);
        let (Some(history), Some(allocated)) = (&self.worker.options.history, allocated) else {
            return Ok(());
        };
        for need in needs.iter().filter(|need| !need.allocated.admin_access) {
            let uuid = &need.identity.uuid;
            if let Err(replaced) = history.check(need.allocated.device.card(), uuid, allocated) {
                return Err(PrepareError::NewCard {
                    device: need.name.clone(),
                    found: uuid.clone(),
                    allocated,
                    since: replaced.since,
                });
            }
        }
        Ok(())
    }

    /// Runs a phase of the work and reports its duration.
    pub async fn timed<T, E>(&self, phase: Phase, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.worker.timed(self.operation, phase, work).await
    }
}
