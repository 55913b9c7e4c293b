//! Plans one partition.

use tessera_card::is_of_change;
use tessera_nvml::GpuInstance;

use super::{CardPlan, Found, Make, Planner};
use crate::prepare::PrepareError;
use crate::prepare::cards::record_ids::partition_id;
use crate::prepare::claim::{DeviceNeed, PartitionNeed};
use tessera_journal::{HardwareChange, HardwareRecord, PartitionChange, PartitionInstances};

impl Planner<'_> {
    /// Finds an existing partition, or plans a new one.
    pub(super) fn find(
        &self,
        need: &DeviceNeed,
        partition: &PartitionNeed,
        instances: &[GpuInstance],
        records: &[HardwareRecord],
        plan: &mut CardPlan,
        found: &mut Found,
    ) -> Result<(), PrepareError> {
        let no_partition = |note| PrepareError::NoPartition {
            device: need.name.clone(),
            uuid: self.identity.uuid.clone(),
            note,
        };
        let placed = |instance: &&GpuInstance| {
            instance.profile_id == partition.profile_id && instance.placement == partition.placement
        };
        if let Some(existing) = partition.existing {
            let there =
                instances.iter().find(|instance| instance.id == existing.gpu_instance && placed(instance));
            let there = there.and_then(|instance| of(instance, Some(existing.compute_instance)));
            found.instances = Some(there.ok_or_else(|| no_partition("; somebody has destroyed it"))?);
            return Ok(());
        }
        if need.allocated.admin_access {
            let there = instances.iter().find(placed).and_then(|instance| of(instance, None));
            found.instances =
                Some(there.ok_or_else(|| no_partition("; with admin access, nothing is made"))?);
            return Ok(());
        }
        let id = partition_id(&partition.name);
        // Another share of a device already planned for this claim.
        if plan.makes.iter().any(|make| make.record.id == id) {
            found.hardware.push(id);
            return Ok(());
        }
        let shared = records.iter().find(|record| record.id == id).and_then(HardwareRecord::partition);
        if let Some(shared) = shared
            && let Some(made) = &shared.made
        {
            let there = instances.iter().find(|instance| is_of_change(instance, &shared));
            let there = there.and_then(|instance| of(instance, Some(made.compute_instance)));
            found.instances =
                Some(there.ok_or_else(|| no_partition("; somebody has destroyed it under another claim"))?);
            found.hardware.push(id);
            return Ok(());
        }
        let in_the_way: Vec<&GpuInstance> =
            instances.iter().filter(|instance| instance.placement.overlaps(partition.placement)).collect();
        if !in_the_way.is_empty() {
            return Err(PrepareError::ForeignInstance {
                device: need.name.clone(),
                uuid: self.identity.uuid.clone(),
                instances: self.describe(&in_the_way),
            });
        }
        let change = PartitionChange {
            profile: partition.profile.clone(),
            profile_id: partition.profile_id,
            placement: partition.placement,
            present: instances.iter().map(|instance| instance.id).collect(),
            made: None,
            not_released: false,
        };
        let record = self.record(id.clone(), HardwareChange::MigPartition(change.clone()));
        let (device, compute_slices) = (need.name.clone(), partition.compute_slices);
        plan.makes.push(Make { device, record, change, compute_slices });
        found.hardware.push(id);
        Ok(())
    }
}

/// A partition's instances: the compute instance with the given id, or the first. `None` if there is none with a UUID.
fn of(instance: &GpuInstance, compute_instance: Option<u32>) -> Option<PartitionInstances> {
    let is_asked = |id: u32| compute_instance.is_none_or(|asked| asked == id);
    let compute = instance.compute_instances.iter().find(|compute| is_asked(compute.id))?;
    Some(PartitionInstances {
        gpu_instance: instance.id,
        compute_instance: compute.id,
        uuid: compute.uuid.clone()?,
    })
}
