//! The GPU instances made by this driver for claims.

use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_api::facts::Placement;
use tokio::sync::watch;

use tessera_journal::{HardwareRecord, Journal, JournalError};

/// Distinguishes the GPU instances made by this driver for claims from all others. NVML can't do so, the journal
/// can.
///
/// Ours come and go with claims, and the publication of a card doesn't depend on them. Others are published
/// unchanged.
pub trait OwnPartitions: Send + Sync + 'static {
    /// The partitions this driver is making, keeps or is destroying on a card at this moment.
    ///
    /// # Errors
    /// [`JournalError`] if the journal can't be read.
    fn of_card(&self, card: PciBusId, uuid: &str) -> Result<Vec<OwnPartition>, JournalError>;
}

/// The journal for discovery; `None` until opened.
pub type OwnPartitionsReceiver = watch::Receiver<Option<Arc<dyn OwnPartitions>>>;

/// A partition of this driver, already made or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPartition {
    /// Its memory slices.
    pub placement: Placement,
    /// Id of its GPU instance, once known.
    pub gpu_instance: Option<u32>,
    /// Ids of GPU instances that existed before the partition, so the partition is none of them.
    pub present: Vec<u32>,
    /// Whether the partition is of an ended claim, and the driver does not destroy it.
    pub not_released: bool,
}

impl OwnPartition {
    /// Whether a GPU instance is this partition.
    #[must_use]
    pub fn is(&self, instance: &tessera_nvml::GpuInstance) -> bool {
        let id = match self.gpu_instance {
            Some(id) => instance.id == id,
            None => !self.present.contains(&instance.id),
        };
        self.placement == instance.placement && id
    }
}

impl OwnPartitions for Journal {
    fn of_card(&self, card: PciBusId, uuid: &str) -> Result<Vec<OwnPartition>, JournalError> {
        let is_of_card =
            |record: &HardwareRecord| record.card_uuid == uuid && record.boot_id == *self.boot_id();
        let mut partitions = Vec::new();
        for entry in self.hardware_of(card)? {
            let record = entry.record?;
            if let Some(partition) = record.partition().filter(|_| is_of_card(&record)) {
                partitions.push(OwnPartition {
                    placement: partition.placement,
                    gpu_instance: partition.made.map(|made| made.gpu_instance),
                    present: partition.present,
                    not_released: partition.not_released,
                });
            }
        }
        Ok(partitions)
    }
}

#[cfg(test)]
mod tests {
    use tessera_nvml::GpuInstance;

    use super::*;

    #[test]
    fn an_instance_is_known_by_its_place_and_by_what_was_there_before() {
        let instance = |id, start| GpuInstance {
            id,
            profile_id: 15,
            placement: Placement { start, size: 2 },
            compute_instances: vec![],
        };
        let placement = Placement { start: 4, size: 2 };
        let mut own = OwnPartition { placement, gpu_instance: None, present: vec![3], not_released: false };
        assert!(own.is(&instance(7, 4)), "what appears at an intent's place is ours");
        assert!(!own.is(&instance(3, 4)), "what was there before is not");
        assert!(!own.is(&instance(7, 6)));
        own.gpu_instance = Some(7);
        assert!(own.is(&instance(7, 4)));
        assert!(!own.is(&instance(8, 4)), "ours is gone, and somebody made another in its place");
    }
}
