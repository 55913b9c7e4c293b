//! Recreates lost devices of a prepared claim, and nothing else: its containers may be using the rest. Until everything is made
//! again, record and CDI spec stay unchanged, so no other claim gets the devices of this one.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::PciBusId;
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_journal::ClaimRecord;

use super::record::{answer, device_names};
use super::steps::Attempt;
use crate::prepare::cards::{IfHeld, Worker};
use crate::prepare::claim::{AllocatedDevice, DeviceNeed};
use crate::prepare::{Phase, PrepareError};

impl Worker {
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
    /// Recreates the devices of a claim's allocation with the CDI names `missing`. `recorded` is its complete record. With an
    /// unreadable record, all are `missing`, and the devices in the claim's CDI spec are found again.
    pub async fn make_again(
        &self,
        recorded: Option<&ClaimRecord>,
        allocated: &[AllocatedDevice],
        missing: &BTreeSet<String>,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let worker = self.worker;
        // Nothing is made for adminAccess, so nothing of it is lost. A device may have such a twin of the same name.
        let is_lost = |device: &&AllocatedDevice| {
            missing.contains(&device.cdi_name) && (recorded.is_none() || !device.admin_access)
        };
        let lost: Vec<AllocatedDevice> = allocated.iter().filter(is_lost).cloned().collect();
        let names: Vec<String> = lost.iter().map(|lost| lost.device.to_string()).collect();
        tracing::warn!(devices = ?names, "what a prepared claim has lost is made again");
        let nvml = worker.nvml()?;
        let files = self.driver_files(&nvml).await?;
        let cards =
            lost.iter().filter(|device| !device.admin_access).map(|device| device.device.card()).collect();
        let locks = self.card_locks(&cards).await?;
        let needs = self.needs(&nvml, &lost, &cards).await?;
        if let Some(recorded) = recorded {
            refuse_other_card(recorded, &needs)?;
        }
        let own = worker.own_hardware(self.claim, recorded).await?;
        let plans = worker.plan(&nvml, &locks, &self.claim.uid, &needs, own);
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
                for device in record.devices.iter_mut().filter(|device| !device.admin_access) {
                    if let Some(made) = made.devices.iter().find(|made| made.cdi_name() == device.cdi_name())
                    {
                        device.clone_from(made);
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
fn refuse_other_card(recorded: &ClaimRecord, needs: &[DeviceNeed]) -> Result<(), PrepareError> {
    for need in needs {
        let recorded = recorded.devices.iter().find(|device| device.cdi_name() == need.allocated.cdi_name);
        if let Some(device) = recorded.filter(|device| device.card_uuid != need.identity.uuid) {
            return Err(PrepareError::OtherCard {
                device: device.device.clone(),
                published: device.card_uuid.clone(),
                found: need.identity.uuid.clone(),
            });
        }
    }
    Ok(())
}
