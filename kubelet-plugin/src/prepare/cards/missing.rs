//! What a prepared claim has lost: partitions and MPS daemons.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use tessera_api::PciBusId;
use tessera_journal::{ClaimDevice, ClaimRecord, PartitionInstances};
use tessera_nvml::{CallError, GpuInstance};

use super::worker::Worker;
use crate::prepare::{PrepareError, blocking};

impl Worker {
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
}

/// Whether a GPU instance is the one behind a partition.
fn is_behind(instance: &GpuInstance, instances: &PartitionInstances) -> bool {
    instance.id == instances.gpu_instance
        && instance.compute_instances.iter().any(|compute| {
            compute.id == instances.compute_instance && compute.uuid.as_deref() == Some(&*instances.uuid)
        })
}
