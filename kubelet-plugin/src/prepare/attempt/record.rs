//! Steps 7 and 10: builds a claim's record from its needs, completes the record after everything is made, and answers from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::Map;
use tessera_api::PciBusId;
use tessera_dra_kubelet::PreparedDevice;
use tessera_journal::{ClaimDevice, ClaimMetadata, ClaimPartition, ClaimPod, ClaimRecord, Stage};

use crate::cdi::{self, DriverFiles};
use crate::prepare::cards::{CardPlan, Worker};
use crate::prepare::claim::{DeviceNeed, ShareLimits};
use crate::prepare::{ClaimReference, Operation, Phase, PrepareError};

impl Worker {
    /// The record of devices about to be prepared.
    pub fn intent(
        &self,
        claim: &ClaimReference,
        pods: Vec<ClaimPod>,
        metadata: ClaimMetadata,
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
            pods,
            metadata: Some(metadata),
            other: Map::new(),
        };
        for device in &mut record.devices {
            let Some(found) = plans.iter().find_map(|plan| plan.found.get(device.cdi_name())) else {
                continue;
            };
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
            alternative: allocated.alternative.clone(),
            share_id: allocated.share_id.clone(),
            admin_access: allocated.admin_access,
            card_uuid: need.identity.uuid.clone(),
            minor: need.identity.minor,
            cdi_device_id: self.cdi.vendor().device_id(&allocated.cdi_name),
            partition,
            sharing: allocated.own_sharing().cloned(),
            memory_mib: allocated.memory_mib,
            mps: allocated.share.map(ShareLimits::to_record),
            hardware: Vec::new(),
            other: Map::new(),
        }
    }

    /// Writes a prepared claim's CDI spec, and then its record.
    pub async fn complete(
        &self,
        mut record: ClaimRecord,
        files: Arc<DriverFiles>,
    ) -> Result<ClaimRecord, PrepareError> {
        let operation = Operation::Prepare;
        self.timed(operation, Phase::Cdi, self.write_spec(&record, files)).await?;
        record.stage = Stage::Complete;
        let complete = record.clone();
        // No sync: another boot would not believe the record, so surviving the process is enough.
        let put = self.disk(move |journal, _| journal.put_claim(&complete));
        self.timed(operation, Phase::Journal, put).await?;
        Ok(record)
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
}

/// The answer to the kubelet for a prepared claim. The first device of each request brings the request's metadata.
pub(in crate::prepare) fn answer(vendor: &cdi::Vendor, record: &ClaimRecord) -> Vec<PreparedDevice> {
    let mut told = BTreeSet::new();
    let device = |device: &ClaimDevice| {
        let is_first = told.insert(device.request.clone()) && record.metadata.is_some();
        let metadata = is_first.then(|| cdi::metadata_device_id(vendor, &record.uid, &device.request));
        PreparedDevice {
            request_names: vec![device.request.clone()],
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            cdi_device_ids: std::iter::once(device.cdi_device_id.clone()).chain(metadata).collect(),
            share_id: device.share_id.clone(),
        }
    };
    record.devices.iter().map(device).collect()
}

/// The cards a claim holds. Devices with admin access are not held.
pub(in crate::prepare) fn held_cards(record: &ClaimRecord) -> BTreeSet<PciBusId> {
    record.devices.iter().filter(|device| !device.admin_access).map(|device| device.card).collect()
}

/// The names of a record's devices, for logs.
pub(in crate::prepare) fn device_names(record: &ClaimRecord) -> Vec<&str> {
    record.devices.iter().map(|device| device.device.as_str()).collect()
}
