use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Map;
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_nvml::Nvml;
use tokio::sync::{Notify, broadcast, watch};
use tracing::Instrument as _;

use super::allocation::{AllocatedDevice, allocated_devices, is_of_allocation};
use super::call::Call;
use super::claim::{self, Found};
use super::claim_events;
use super::conflict::Use;
use super::files::Files;
use super::hardware::CardPlan;
use super::holder::{holders, holders_of_other_drivers};
use super::need::{DeviceNeed, Profiles, needs};
use super::sharing::{ShareLimits, Sharing};
use super::{
    ClaimReference, Operation, Phase, PrepareError, PrepareObserver, PrepareOptions, PreparedDevice, blocking,
};
use crate::cdi::{self, ClaimSpecDevice, DriverFiles, Roots};
use crate::driver::Driver;
use tessera_card::{CardLocks, FileLock, LockError, Locks};
use tessera_journal::{ClaimDevice, ClaimPartition, ClaimRecord, HardwareRecord, Journal, Stage};
use tessera_kube_util::events::Events;
use tessera_nvml::DriverCalls;

/// Does the work on claims, one piece at a time for each claim.
pub(super) struct Worker {
    pub(super) options: PrepareOptions,
    pub(super) client: Client,
    pub(super) hardware: Driver,
    pub(super) published: watch::Receiver<Option<Arc<Machine>>>,
    pub(super) journal: Arc<Journal>,
    pub(super) cdi: Arc<cdi::Directory>,
    pub(super) locks: Locks,
    pub(super) calls: DriverCalls,
    pub(super) files: Files,
    pub(super) profiles: Arc<Profiles>,
    pub(super) sharing: Sharing,
    pub(super) observer: Arc<dyn PrepareObserver>,
    pub(super) events: Events,
    /// Tells that an MPS daemon may not be as the journal says.
    pub(super) unsettled: Notify,
    /// UIDs of claims that hold nothing any more.
    pub(super) released: broadcast::Sender<Arc<str>>,
}

/// How long one attempt waits for the lock of its claim, and for those of its cards at least.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Users are told of a claim that queues for its cards for so long: a few seconds are nothing to tell of.
const TELL_QUEUED_AFTER: Duration = Duration::from_secs(5);

impl Worker {
    /// One attempt to prepare a claim, or to tell again what an earlier call prepared. Locks are waited for only
    /// shortly: whoever waits holds none.
    pub(super) async fn attempt(
        &self,
        claim: &ClaimReference,
        call: &Call,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let operation = Operation::Prepare;
        let _claim_lock = self.claim_lock(operation, &claim.uid, call, LOCK_PATIENCE).await?;
        let recorded = self.timed(operation, Phase::Journal, self.record_or_damage(&claim.uid)).await?;
        let is_damaged = recorded.is_err();
        let recorded = recorded.unwrap_or_default();
        let complete = recorded.as_ref().filter(|record| self.is_prepared(record));

        let options = &self.options;
        let patience = if complete.is_some() { options.short_patience } else { options.patience };
        let patience = patience.min(call.time_left(options.short_patience));
        let allocated = call.unless_ended(self.allocation(claim, patience, call));
        let allocated = self.timed(operation, Phase::Claim, allocated).await;
        match (complete, allocated) {
            // Prepared in this boot and the API server is away: the kubelet has checked the claim's UID itself.
            (Some(record), Err(error @ PrepareError::Api { .. })) => {
                tracing::warn!(%error, "answering from the journal");
                self.tell_again(operation, record).await
            }
            (_, Err(error)) => Err(error),
            (Some(record), Ok(allocated)) if is_of_allocation(record, &allocated) => {
                let missing = self.timed(operation, Phase::Hardware, self.missing(record)).await?;
                if missing.is_empty() {
                    let numbered = self.timed(operation, Phase::Hardware, self.with_present_minors(record));
                    return self.tell_again(operation, &numbered.await?).await;
                }
                self.make_again(claim, Some(record), &allocated, &missing, call).await
            }
            (_, Ok(allocated)) if is_damaged && self.is_in_spec(claim, &allocated).await? => {
                let all = (0..allocated.len()).collect();
                self.make_again(claim, None, &allocated, &all, call).await
            }
            (_, Ok(allocated)) => self.prepare_anew(claim, recorded.as_ref(), &allocated, call).await,
        }
    }

    /// Prepares an allocation. `recorded` is what is there of an earlier attempt, boot or allocation of the claim.
    pub(super) async fn prepare_anew(
        &self,
        claim: &ClaimReference,
        recorded: Option<&ClaimRecord>,
        allocated: &[AllocatedDevice],
        call: &Call,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let operation = Operation::Prepare;
        let nvml = self.nvml()?;
        let files = call.unless_ended(self.files.of(&nvml, &self.calls, &self.options));
        let files = self.timed(operation, Phase::DriverFiles, files).await?;

        let mut cards: BTreeSet<PciBusId> = recorded.map(held_cards).unwrap_or_default();
        cards.extend(
            allocated.iter().filter(|device| !device.admin_access).map(|device| device.device.card()),
        );
        let since = Instant::now();
        let card_locks = self.card_locks(operation, claim, &cards, call).await?;
        if since.elapsed() > LOCK_PATIENCE {
            // The claim may be another one meanwhile.
            self.still_allocated(claim, allocated, call).await?;
        }
        if let Some(record) = recorded {
            tracing::info!(stage = ?record.stage, boot = %record.boot_id, "undoing what an earlier attempt left");
            self.undo(operation, &claim.uid, Some((record, &card_locks))).await?;
        }
        let published = self.published.borrow().clone();
        let look = || {
            let needs =
                call.unless_ended(needs(&nvml, &self.calls, &self.profiles, published.as_deref(), allocated));
            self.timed(operation, Phase::Hardware, needs)
        };
        let mut needs = look().await?;
        if self.timed(operation, Phase::Journal, self.refuse_conflicts(claim, &needs, &cards)).await? {
            // What was released changed cards.
            needs = look().await?;
        }
        let plans = self.plan(&nvml, &card_locks, claim, &needs, BTreeSet::new());
        let plans = self.timed(operation, Phase::Hardware, plans).await?;

        let mut record = self.intent(claim, &needs, &plans);
        if let Err(error) = self.make_real(&mut record, &nvml, &card_locks, plans, files).await {
            record.stage = Stage::Intent;
            if let Err(undo) = self.undo(operation, &claim.uid, Some((&record, &card_locks))).await {
                tracing::warn!(error = %undo,
                    "could not undo the failed attempt; the next Prepare, Unprepare or start of the plugin will");
            }
            return Err(error);
        }
        let pods: Vec<String> = call.consumers().into_iter().filter_map(|pod| pod.name).collect();
        tracing::info!(?pods, devices = ?device_names(&record), "prepared");
        Ok(answer(&record))
    }

    /// The record of what is to be prepared.
    pub(super) fn intent(
        &self,
        claim: &ClaimReference,
        needs: &[DeviceNeed],
        plans: &[CardPlan],
    ) -> ClaimRecord {
        let mut record = ClaimRecord {
            version: ClaimRecord::VERSION,
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            boot_id: self.journal.boot_id().clone(),
            stage: Stage::Intent,
            devices: needs.iter().map(|need| self.claim_device(need)).collect(),
            other: Map::new(),
        };
        for found in plans.iter().flat_map(|plan| &plan.found) {
            let Some(device) = record.devices.get_mut(found.index) else { continue };
            device.hardware.clone_from(&found.hardware);
            if let Some(partition) = &mut device.partition {
                partition.instances.clone_from(&found.instances);
            }
        }
        record
    }

    fn claim_device(&self, need: &DeviceNeed) -> ClaimDevice {
        let allocated = &need.allocated;
        let partition = need.partition.as_ref().map(|partition| ClaimPartition {
            profile: partition.profile.clone(),
            placement: partition.placement,
            compute_slices: partition.compute_slices,
            instances: None,
        });
        ClaimDevice {
            device: need.name.clone(),
            card: allocated.device.card(),
            pool: allocated.pool.clone(),
            request: allocated.request.clone(),
            share_id: allocated.share_id.clone(),
            admin_access: allocated.admin_access,
            card_uuid: need.identity.uuid.clone(),
            minor: need.identity.minor,
            cdi_device_id: self.cdi.vendor().device_id(&allocated.cdi_name),
            partition,
            sharing: allocated.own_sharing().cloned(),
            mps: allocated.share.map(ShareLimits::to_record),
            hardware: Vec::new(),
            other: Map::new(),
        }
    }

    /// Intents, effects, completion: in this order, whatever is added between.
    async fn make_real(
        &self,
        record: &mut ClaimRecord,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        plans: Vec<CardPlan>,
        files: Arc<DriverFiles>,
    ) -> Result<(), PrepareError> {
        // A card that is taken as it is needs no intent: of an attempt that is cut off, only a CDI spec without a record is
        // left, and that is removed at the next start.
        if record.devices.iter().any(|device| !device.hardware.is_empty()) {
            let (journal, intent) = (self.journal.clone(), record.clone());
            let put = async { Ok(blocking::run(move || journal.put_claim(&intent)).await??) };
            self.timed::<_, PrepareError>(Operation::Prepare, Phase::Journal, put).await?;
        }
        self.make_hardware(record, nvml, locks, plans).await?;
        *record = self.complete(record.clone(), files).await?;
        Ok(())
    }

    /// Brings the intents of plans to the disk, with one sync for all of them, and carries the plans out; the record is told
    /// what was made.
    pub(super) async fn make_hardware(
        &self,
        record: &mut ClaimRecord,
        nvml: &Arc<dyn Nvml>,
        locks: &CardLocks,
        plans: Vec<CardPlan>,
    ) -> Result<(), PrepareError> {
        let operation = Operation::Prepare;
        if !plans.iter().any(CardPlan::has_work) {
            return Ok(());
        }
        let intents: Vec<&HardwareRecord> = plans.iter().flat_map(CardPlan::intents).collect();
        if !intents.is_empty() {
            self.timed(operation, Phase::Sync, self.journal.put_hardware(&intents)).await?;
        }
        let made = self.timed(operation, Phase::Hardware, self.make(nvml, locks, plans)).await?;
        for device in &mut record.devices {
            let Some(partition) = &mut device.partition else { continue };
            if let Some(instances) = device.hardware.iter().find_map(|id| made.partitions.get(id)) {
                partition.instances = Some(instances.clone());
            }
        }
        for (index, mps) in made.shares {
            if let Some(device) = record.devices.get_mut(index) {
                device.mps = Some(mps);
            }
        }
        Ok(())
    }

    /// The answer of an earlier Prepare, with the claim's CDI spec put back if someone removed it.
    async fn tell_again(
        &self,
        operation: Operation,
        record: &ClaimRecord,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let (cdi, uid) = (self.cdi.clone(), record.uid.clone());
        let spec = async { Ok(blocking::run(move || cdi.read(&uid)).await??) };
        let spec = self.timed::<_, PrepareError>(operation, Phase::Cdi, spec).await?;
        if spec.is_none() {
            let nvml = self.nvml()?;
            let files = self.files.of(&nvml, &self.calls, &self.options);
            let files = self.timed(operation, Phase::DriverFiles, files).await?;
            tracing::warn!("the CDI spec of the prepared claim was gone: writing it again");
            self.timed(operation, Phase::Cdi, self.write_spec(record, files)).await?;
        }
        Ok(answer(record))
    }

    /// Refuses an allocation whose devices other claims hold, unless they are found to be stale: those are released. Tells
    /// whether any was. `locked` are the cards whose locks are held.
    pub(super) async fn refuse_conflicts(
        &self,
        claim: &ClaimReference,
        needs: &[DeviceNeed],
        locked: &BTreeSet<PciBusId>,
    ) -> Result<bool, PrepareError> {
        let mut released = false;
        let uses: Vec<Use<'_>> = needs.iter().map(Use::of_need).collect();
        let (journal, cdi) = (self.journal.clone(), self.cdi.clone());
        let holders = blocking::run(move || -> Result<_, PrepareError> {
            let mut holders = holders(&journal, &cdi)?;
            holders.extend(holders_of_other_drivers(&cdi)?);
            Ok(holders)
        });
        let holders = holders.await??;
        for holder in holders.iter().filter(|holder| holder.uid != claim.uid) {
            let Some(contested) = uses.iter().find(|mine| holder.conflicts_with(**mine)) else { continue };
            if let Some(reason) = self.release_if_stale(holder, locked).await {
                return Err(PrepareError::Held {
                    device: contested.device_name().to_owned(),
                    holder: holder.to_string(),
                    note: reason.note,
                    leaving: reason.is_leaving.then(|| holder.uid.clone()),
                });
            }
            released = true;
        }
        Ok(released)
    }

    /// What the API says is allocated to the claim of this driver.
    async fn allocation(
        &self,
        claim: &ClaimReference,
        patience: Duration,
        call: &Call,
    ) -> Result<Vec<AllocatedDevice>, PrepareError> {
        match claim::get(&self.client, claim, patience).await? {
            Found::Gone => Err(PrepareError::Gone { claim: claim.to_string() }),
            Found::Other(found) => Err(PrepareError::Replaced { claim: claim.to_string(), found }),
            Found::Claim(found) => {
                call.set_consumers(claim::pods(&found));
                let name = claim.to_string();
                allocated_devices(&found, &name, &self.options.driver_name, &self.options.pool_name)
            }
        }
    }

    /// The claim's record; none where it can't be understood.
    pub(super) async fn recorded(&self, uid: &str) -> Result<Option<ClaimRecord>, PrepareError> {
        Ok(self.record_or_damage(uid).await?.unwrap_or_default())
    }

    /// Whether a record says that the claim is prepared now: what an earlier boot prepared is gone.
    pub(super) fn is_prepared(&self, record: &ClaimRecord) -> bool {
        record.stage == Stage::Complete && record.boot_id == *self.journal.boot_id()
    }

    /// Undoes whatever there is of a claim, its record last. The caller holds the claim's lock; `recorded` is its record
    /// with the locks of its cards.
    pub(super) async fn undo(
        &self,
        operation: Operation,
        uid: &str,
        recorded: Option<(&ClaimRecord, &CardLocks)>,
    ) -> Result<(), PrepareError> {
        let (cdi, claim) = (self.cdi.clone(), uid.to_owned());
        let removed = async { Ok(blocking::run(move || cdi.remove(&claim)).await??) };
        self.timed::<_, PrepareError>(operation, Phase::Cdi, removed).await?;
        if let Some((record, locks)) = recorded {
            self.unmake_claim(operation, record, locks).await?;
        }
        let (journal, claim) = (self.journal.clone(), uid.to_owned());
        let removed = async { Ok(blocking::run(move || journal.remove_claim(&claim)).await??) };
        self.timed::<_, PrepareError>(operation, Phase::Journal, removed).await?;
        // Nobody may be waiting.
        let _ = self.released.send(uid.into());
        Ok(())
    }

    /// The claim's lock, waited for so long.
    pub(super) async fn claim_lock(
        &self,
        operation: Operation,
        uid: &str,
        call: &Call,
        longest: Duration,
    ) -> Result<FileLock, PrepareError> {
        self.locked(operation, "the claim", call, longest, self.locks.claim(uid)).await
    }

    /// The cards' locks. Claims of one card queue for them as long as the call has time: each step on a card takes about a
    /// second, and whoever gave up its place would start behind all others.
    pub(super) async fn card_locks(
        &self,
        operation: Operation,
        claim: &ClaimReference,
        cards: &BTreeSet<PciBusId>,
        call: &Call,
    ) -> Result<CardLocks, PrepareError> {
        const WHAT: &str = "a card of the claim";
        let longest = call.time_left(LOCK_PATIENCE);
        let locks = self.locked(operation, WHAT, call, longest, self.locks.cards(cards));
        tokio::pin!(locks);
        let locks = tokio::select! {
            biased;
            locks = &mut locks => locks,
            () = tokio::time::sleep(LOCK_PATIENCE) => {
                let busy = PrepareError::Busy { what: WHAT, longest: TELL_QUEUED_AFTER };
                self.observer.waiting(busy.reason(), true);
                let told = tokio::time::timeout(TELL_QUEUED_AFTER - LOCK_PATIENCE, &mut locks).await;
                let locks = match told {
                    Ok(locks) => locks,
                    Err(_) => {
                        claim_events::waiting(&self.events, operation, claim, &call.consumers(), &busy);
                        locks.await
                    }
                };
                self.observer.waiting(busy.reason(), false);
                locks
            }
        };
        let locks = locks.map_err(|error| match error {
            PrepareError::Busy { .. } => self.calls.hanging(cards).map_or(error, PrepareError::from),
            error => error,
        });
        locks.map(Arc::new)
    }

    /// Whether the API still says what was read before a wait.
    async fn still_allocated(
        &self,
        claim: &ClaimReference,
        allocated: &[AllocatedDevice],
        call: &Call,
    ) -> Result<(), PrepareError> {
        let now = call.unless_ended(self.allocation(claim, self.options.short_patience, call));
        let now = self.timed(Operation::Prepare, Phase::Claim, now).await?;
        if now == allocated {
            return Ok(());
        }
        Err(PrepareError::Busy { what: "the claim", longest: Duration::ZERO })
    }

    async fn locked<T>(
        &self,
        operation: Operation,
        what: &'static str,
        call: &Call,
        longest: Duration,
        lock: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, PrepareError> {
        let lock = async {
            let locked = tokio::time::timeout(longest, lock).await;
            locked.map_err(|_| PrepareError::Busy { what, longest })?.map_err(PrepareError::from)
        };
        self.timed(operation, Phase::Lock, call.unless_ended(lock)).await
    }

    /// Writes the CDI spec of a record's claim.
    pub(super) async fn write_spec(
        &self,
        record: &ClaimRecord,
        files: Arc<DriverFiles>,
    ) -> Result<(), PrepareError> {
        let (cdi, roots, record) = (self.cdi.clone(), self.options.roots.clone(), record.clone());
        blocking::run(move || {
            let devices = spec_devices(&record, &roots)?;
            let spec = cdi::claim_spec(cdi.vendor(), &roots, &devices, &files.present(&roots));
            Ok(cdi.write(&record.uid, &spec)?)
        })
        .await?
    }

    /// The driver.
    pub(super) fn nvml(&self) -> Result<Arc<dyn Nvml>, PrepareError> {
        self.hardware.borrow().clone().ok_or(PrepareError::NoDriver)
    }

    /// Does a phase of the work and tells how long it took.
    pub(super) async fn timed<T, E>(
        &self,
        operation: Operation,
        phase: Phase,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let span = tracing::debug_span!("phase", phase = phase.as_str());
        let start = Instant::now();
        let result = work.instrument(span).await;
        self.observer.phase(operation, phase, result.is_ok(), start.elapsed());
        result
    }
}

/// What the kubelet is told of a prepared claim.
pub(super) fn answer(record: &ClaimRecord) -> Vec<PreparedDevice> {
    let device = |device: &ClaimDevice| PreparedDevice {
        request_names: vec![device.request.clone()],
        pool_name: device.pool.clone(),
        device_name: device.device.clone(),
        cdi_device_ids: vec![device.cdi_device_id.clone()],
        share_id: device.share_id.clone(),
    };
    record.devices.iter().map(device).collect()
}

/// The devices of a record as its CDI spec needs them. Blocks for file reads.
pub(super) fn spec_devices(
    record: &ClaimRecord,
    roots: &Roots,
) -> Result<Vec<ClaimSpecDevice>, PrepareError> {
    let device = |device: &ClaimDevice| {
        let mut spec = ClaimSpecDevice {
            name: cdi::device_name(&record.uid, &device.device, device.share_id.as_deref()),
            device: device.device.clone(),
            card: device.card,
            minor: device.minor,
            uuid: device.card_uuid.clone(),
            partition_nodes: None,
            mps: device.mps.clone().filter(|_| !device.admin_access),
        };
        let Some(partition) = &device.partition else { return Ok(spec) };
        let instances = partition.instances.as_ref().ok_or_else(|| PrepareError::NoPartition {
            device: device.device.clone(),
            uuid: device.card_uuid.clone(),
            note: "; the record of the claim does not say which it is",
        })?;
        let nodes =
            cdi::partition_nodes(roots, device.minor, instances.gpu_instance, instances.compute_instance);
        let nodes = nodes.map_err(|error| PrepareError::Capability {
            device: device.device.clone(),
            path: error.path.display().to_string(),
            reason: error.reason,
        })?;
        spec.uuid.clone_from(&instances.uuid);
        spec.partition_nodes = Some(nodes);
        Ok(spec)
    };
    record.devices.iter().map(device).collect()
}

/// The cards a claim holds, which those it only looks at are not.
pub(super) fn held_cards(record: &ClaimRecord) -> BTreeSet<PciBusId> {
    record.devices.iter().filter(|device| !device.admin_access).map(|device| device.card).collect()
}

/// The names of a record's devices, for the log.
pub(super) fn device_names(record: &ClaimRecord) -> Vec<&str> {
    record.devices.iter().map(|device| device.device.as_str()).collect()
}
