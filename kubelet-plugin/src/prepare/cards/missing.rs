//! What a prepared claim has lost: partitions and MPS daemons.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_journal::{ClaimDevice, ClaimRecord, PartitionInstances};
use tessera_nvml::{CallError, GpuInstance};

use super::worker::Worker;
use crate::prepare::{PrepareError, blocking};

impl Worker {
    /// CDI names of a prepared claim's devices without their partition or MPS daemon, and of devices sharing such a daemon.
    /// Anything impossible to determine counts as present.
    pub async fn missing(&self, record: &ClaimRecord) -> Result<BTreeSet<String>, PrepareError> {
        let mut missing = self.without_daemon(record).await?;
        missing.extend(self.without_partition(record).await?);
        let object = |device: &ClaimDevice| device.sharing.as_ref().map(|sharing| sharing.object);
        let lost = record.devices.iter().filter(|device| missing.contains(device.cdi_name()));
        let objects: BTreeSet<u32> = lost.filter_map(object).collect();
        let shares_with_one =
            |device: &&ClaimDevice| object(device).is_some_and(|object| objects.contains(&object));
        let sharing = record.devices.iter().filter(shares_with_one);
        missing.extend(sharing.map(|device| device.cdi_name().to_owned()));
        Ok(missing)
    }

    async fn without_daemon(&self, record: &ClaimRecord) -> Result<BTreeSet<String>, PrepareError> {
        let is_share = |device: &&ClaimDevice| device.mps.is_some() && device.uuid().is_some();
        let shares: Vec<ClaimDevice> = record.devices.iter().filter(is_share).cloned().collect();
        if shares.is_empty() {
            return Ok(BTreeSet::new());
        }
        let sharing = self.sharing.clone();
        blocking::run(move || sharing.without_mps(&shares)).await
    }

    async fn without_partition(&self, record: &ClaimRecord) -> Result<BTreeSet<String>, PrepareError> {
        let mut cards: BTreeMap<PciBusId, Vec<(String, PartitionInstances)>> = BTreeMap::new();
        for device in record.devices.iter().filter(|device| !device.admin_access) {
            if let Some(instances) =
                device.partition.as_ref().and_then(|partition| partition.instances.clone())
            {
                cards.entry(device.card).or_default().push((device.cdi_name().to_owned(), instances));
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
                Ok(gone) => missing.extend(gone.into_iter().map(|(name, _)| name)),
                Err(CallError::NotAnswering { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(missing)
    }
}

/// Whether a GPU instance is the one behind a partition.
fn is_behind(instance: &GpuInstance, instances: &PartitionInstances) -> bool {
    instance.id == instances.gpu_instance
        && instance.compute_instances.iter().any(|compute| {
            compute.id == instances.compute_instance && compute.uuid.as_deref() == Some(&*instances.uuid)
        })
}
