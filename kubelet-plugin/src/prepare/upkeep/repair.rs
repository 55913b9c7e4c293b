//! Recreates lost devices of a prepared claim, and nothing else: its containers may be using the rest. Until the repair is
//! complete, record and CDI spec stay unchanged, so no other claim gets the devices of this one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_nvml::GpuInstance;
use tokio::time::Instant as Deadline;

use crate::prepare::attempt::call::{Call, Ending};
use crate::prepare::attempt::record::{answer, device_names};
use crate::prepare::attempt::steps::Attempt;
use crate::prepare::cards::changes::IfHeld;
use crate::prepare::cards::worker::Worker;
use crate::prepare::claim::allocation::{AllocatedDevice, recorded_devices};
use crate::prepare::claim::need::DeviceNeed;
use crate::prepare::tell::claim_events;
use crate::prepare::{ClaimReference, Operation, Phase, PrepareError, PreparedDevice, blocking};
use tessera_journal::{ClaimDevice, ClaimRecord, JournalError, PartitionInstances};
use tessera_nvml::CallError;

impl Worker {
    /// The claim's record, or the error for an unreadable record.
    pub async fn record_or_damage(
        &self,
        uid: &str,
    ) -> Result<Result<Option<ClaimRecord>, JournalError>, PrepareError> {
        let uid = uid.to_owned();
        match self.disk(move |journal, _| journal.claim(&uid)).await {
            Err(PrepareError::Journal(error)) if error.is_corrupt() => {
                tracing::warn!(%error, "replacing the record");
                Ok(Err(error))
            }
            recorded => Ok(Ok(recorded?)),
        }
    }

    /// Positions of a prepared claim's devices without their partition or MPS daemon, and of devices sharing such a daemon.
    /// Anything impossible to determine counts as present.
    pub async fn missing(&self, record: &ClaimRecord) -> Result<BTreeSet<usize>, PrepareError> {
        let mut missing = self.without_daemon(record).await?;
        missing.extend(self.without_partition(record).await?);
        let object = |device: &ClaimDevice| device.sharing.as_ref().map(|sharing| sharing.object);
        let objects: BTreeSet<u32> =
            missing.iter().filter_map(|index| object(record.devices.get(*index)?)).collect();
        let shares_with_one =
            |device: &ClaimDevice| object(device).is_some_and(|object| objects.contains(&object));
        let sharing = record.devices.iter().enumerate().filter(|(_, device)| shares_with_one(device));
        missing.extend(sharing.map(|(index, _)| index));
        Ok(missing)
    }

    async fn without_daemon(&self, record: &ClaimRecord) -> Result<BTreeSet<usize>, PrepareError> {
        let share = |(index, device): (usize, &ClaimDevice)| {
            let partition = device.mps.as_ref()?.static_partition.clone();
            Some((index, device.uuid()?.to_owned(), partition))
        };
        let shares: Vec<_> = record.devices.iter().enumerate().filter_map(share).collect();
        if shares.is_empty() {
            return Ok(BTreeSet::new());
        }
        let sharing = self.sharing.clone();
        Ok(blocking::run(move || sharing.without_mps(&shares)).await?.into_iter().collect())
    }

    async fn without_partition(&self, record: &ClaimRecord) -> Result<BTreeSet<usize>, PrepareError> {
        let mut cards: BTreeMap<PciBusId, Vec<(usize, PartitionInstances)>> = BTreeMap::new();
        for (index, device) in record.devices.iter().enumerate().filter(|(_, device)| !device.admin_access) {
            if let Some(instances) =
                device.partition.as_ref().and_then(|partition| partition.instances.clone())
            {
                cards.entry(device.card).or_default().push((index, instances));
            }
        }
        let Ok(nvml) = self.nvml() else { return Ok(BTreeSet::new()) };
        let looks = cards.into_iter().map(|(card, mut expected)| {
            let nvml = nvml.clone();
            self.calls.ask(card, move || {
                let Ok(there) = nvml.gpu_instances(card) else { return Vec::new() };
                expected.retain(|(_, instances)| !there.iter().any(|there| is_behind(there, instances)));
                expected
            })
        });
        let mut missing = BTreeSet::new();
        for gone in join_all(looks).await {
            match gone {
                Ok(gone) => missing.extend(gone.into_iter().map(|(index, _)| index)),
                Err(CallError::NotAnswering { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(missing)
    }

    /// Whether the claim's CDI spec gives its containers exactly these devices.
    pub async fn is_in_spec(
        &self,
        claim: &ClaimReference,
        allocated: &[AllocatedDevice],
    ) -> Result<bool, PrepareError> {
        let holder = self.holder_of_spec(claim).await?;
        let names: BTreeSet<&str> = allocated.iter().map(|device| &*device.cdi_name).collect();
        Ok(!names.is_empty() && holder.cdi_names() == names)
    }

    /// Recreates devices lost by prepared claims within this boot: somebody destroyed partitions, or the driver was reloaded. A
    /// container restarting later gets the devices existing then.
    pub async fn repair(&self) -> Result<(), PrepareError> {
        for entry in self.disk(|journal, _| journal.shared_claims()).await? {
            let Ok(record) = entry.record else { continue };
            if !self.is_prepared(&record) || record.devices.iter().all(|device| device.hardware.is_empty()) {
                continue;
            }
            // Skip a locked claim: the work in flight repairs the claim too.
            let Some(_claim_lock) = self.locks.try_claim(&entry.id)? else { continue };
            let Some(record) = self.recorded(&entry.id).await?.filter(|record| self.is_prepared(record))
            else {
                continue;
            };
            // A device of several claims is recreated by the next Prepare of each claim.
            if record.devices.iter().any(|device| device.share_id.is_some()) {
                continue;
            }
            let missing = self.missing(&record).await?;
            if missing.is_empty() {
                continue;
            }
            let claim = ClaimReference {
                namespace: record.namespace.clone(),
                name: record.name.clone(),
                uid: record.uid.clone(),
            };
            let call = Call::new(Deadline::now() + self.options.answer_within, Ending::default());
            let (operation, if_held) = (Operation::Prepare, IfHeld::Wait);
            let attempt = Attempt { worker: self, operation, claim: &claim, call: &call, if_held };
            let since = Instant::now();
            let made = match recorded_devices(&record) {
                Ok(devices) => attempt.make_again(Some(&record), &devices, &missing).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                tracing::error!(uid = record.uid, %error, elapsed = ?since.elapsed(),
                    "what the claim has lost can't be made again; it keeps the rest");
                claim_events::failed(&self.events, Operation::Prepare, &claim, &error);
            }
        }
        Ok(())
    }

    /// The record with the present minor numbers of its cards: a reloaded driver assigns new ones. A card without an answer keeps
    /// its old number.
    ///
    /// # Errors
    /// [`PrepareError::OtherCard`] if another card is now at an address.
    pub async fn with_present_minors(&self, record: &ClaimRecord) -> Result<ClaimRecord, PrepareError> {
        let mut record = record.clone();
        let Ok(nvml) = self.nvml() else { return Ok(record) };
        let cards: BTreeSet<PciBusId> = record.devices.iter().map(|device| device.card).collect();
        let looks = cards.into_iter().map(|card| {
            let nvml = nvml.clone();
            async move { (card, self.calls.ask(card, move || nvml.identify(card)).await) }
        });
        let mut is_changed = false;
        for look in join_all(looks).await {
            let (card, Ok(Ok(identity))) = look else { continue };
            for device in record.devices.iter_mut().filter(|device| device.card == card) {
                if device.card_uuid != identity.uuid {
                    return Err(PrepareError::OtherCard {
                        device: device.device.clone(),
                        published: device.card_uuid.clone(),
                        found: identity.uuid,
                    });
                }
                is_changed |= device.minor != identity.minor;
                device.minor = identity.minor;
            }
        }
        if is_changed {
            tracing::info!(uid = record.uid, "its cards have other numbers now");
            let files = self.files.of(&nvml, &self.calls, &self.options).await?;
            record = self.complete(record, files).await?;
        }
        Ok(record)
    }

    /// Ids of the hardware records referenced by the claim.
    async fn own_hardware(
        &self,
        claim: &ClaimReference,
        recorded: Option<&ClaimRecord>,
    ) -> Result<BTreeSet<String>, PrepareError> {
        if let Some(record) = recorded {
            return Ok(record.devices.iter().flat_map(|device| &device.hardware).cloned().collect());
        }
        let holder = self.holder_of_spec(claim).await?;
        Ok(holder.hardware_by_card().into_values().flatten().collect())
    }
}

impl Attempt<'_> {
    /// Recreates the devices at the positions `missing` of a claim's allocation. `recorded` is its complete record. With an
    /// unreadable record, all are `missing`, and the devices in the claim's CDI spec are found again.
    pub async fn make_again(
        &self,
        recorded: Option<&ClaimRecord>,
        allocated: &[AllocatedDevice],
        missing: &BTreeSet<usize>,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let worker = self.worker;
        let names: Vec<String> = missing
            .iter()
            .filter_map(|index| allocated.get(*index))
            .map(|lost| lost.device.to_string())
            .collect();
        tracing::warn!(devices = ?names, "what a prepared claim has lost is made again");
        let nvml = worker.nvml()?;
        let files = self.driver_files(&nvml).await?;
        let lost: Vec<AllocatedDevice> =
            missing.iter().filter_map(|index| allocated.get(*index)).cloned().collect();
        let cards =
            lost.iter().filter(|device| !device.admin_access).map(|device| device.device.card()).collect();
        let locks = self.card_locks(&cards).await?;
        let needs = self.needs(&nvml, &lost, &cards).await?;
        if let Some(recorded) = recorded {
            refuse_other_card(recorded, missing, &needs)?;
        }
        let own = worker.own_hardware(self.claim, recorded).await?;
        let plans = worker.plan(&nvml, &locks, self.claim, &needs, own);
        let plans = self.timed(Phase::Hardware, plans).await?;
        let mut intents = BTreeMap::<PciBusId, Vec<String>>::new();
        for intent in plans.iter().flat_map(|plan| plan.intents()) {
            intents.entry(intent.card).or_default().push(intent.id.clone());
        }
        let mut made = worker.intent(self.claim, self.call.pods(), self.call.metadata(), &needs, &plans);
        if let Err(error) = self.make_hardware(&mut made, &nvml, &locks, plans).await {
            if let Err(undo) = worker.unmake(&nvml, &locks, intents, IfHeld::Wait).await {
                tracing::warn!(error = %undo, "could not undo what the failed attempt made; it is tried again");
            }
            return Err(error);
        }
        let record = match recorded {
            None => made,
            Some(recorded) => {
                let mut record = recorded.clone();
                for (index, device) in missing.iter().zip(made.devices) {
                    if let Some(lost) = record.devices.get_mut(*index) {
                        *lost = device;
                    }
                }
                record
            }
        };
        let record = worker.complete(record, files).await?;
        tracing::info!(devices = ?device_names(&record), "made again what the claim had lost");
        Ok(answer(worker.cdi.vendor(), &record))
    }
}

/// Devices lost with their card are not recreated on another card in the same place.
fn refuse_other_card(
    recorded: &ClaimRecord,
    missing: &BTreeSet<usize>,
    needs: &[DeviceNeed],
) -> Result<(), PrepareError> {
    for (index, need) in missing.iter().zip(needs) {
        let Some(device) = recorded.devices.get(*index) else { continue };
        if device.card_uuid != need.identity.uuid {
            return Err(PrepareError::OtherCard {
                device: device.device.clone(),
                published: device.card_uuid.clone(),
                found: need.identity.uuid.clone(),
            });
        }
    }
    Ok(())
}

/// Whether a GPU instance is the one behind a partition.
fn is_behind(instance: &GpuInstance, instances: &PartitionInstances) -> bool {
    instance.id == instances.gpu_instance
        && instance.compute_instances.iter().any(|compute| {
            compute.id == instances.compute_instance && compute.uuid.as_deref() == Some(&*instances.uuid)
        })
}
