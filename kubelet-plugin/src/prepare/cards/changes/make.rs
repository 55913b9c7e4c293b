//! Step 8: carries out a plan on one card.

use std::collections::BTreeMap;
use std::time::Instant;

use tessera_card::{MakeError, describe, make_partition, switches_at_once};
use tessera_nvml::NvmlError;

use super::mode::switch_mode;
use super::plan::{CardPlan, Make};
use super::{Tools, on_or_off};
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{HardwareChange, HardwareRecord, PartitionChange, PartitionInstances};

/// Carries out a plan whose intents are on the disk, except its shares, and completes their records. Returns the
/// partitions by the ids of their records. Blocks, for seconds.
///
/// After an error, undo the plan's records with [`unmake`](super::unmake()).
pub(in crate::prepare) fn make(
    tools: &Tools,
    plan: &CardPlan,
) -> Result<BTreeMap<String, PartitionInstances>, PrepareError> {
    let maker = Maker { tools, plan };
    if let Some(switch) = &plan.switch {
        maker.switch(switch)?;
    }
    let mut partitions = BTreeMap::new();
    for make in &plan.makes {
        let start = Instant::now();
        let instances = maker.partition(make);
        let outcome = instances.as_ref().map_or_else(PrepareError::reason, |_| "success");
        tools.observer.hardware(HardwareWork::MakePartition, outcome, start.elapsed());
        let instances = instances?;
        let change = PartitionChange { made: Some(instances.clone()), ..make.change.clone() };
        let change = HardwareChange::MigPartition(change).to_map();
        tools.complete(HardwareRecord { change, ..make.record.clone() })?;
        tracing::info!(device = make.device, uuid = instances.uuid, gpu_instance = instances.gpu_instance,
            elapsed = ?start.elapsed(), "made a partition");
        partitions.insert(make.record.id.clone(), instances);
    }
    Ok(partitions)
}

struct Maker<'a> {
    tools: &'a Tools,
    plan: &'a CardPlan,
}

impl Maker<'_> {
    fn switch(&self, record: &HardwareRecord) -> Result<(), PrepareError> {
        let Some(mode) = record.mode() else { return Ok(()) };
        let start = Instant::now();
        let switched = self.switch_to(mode.to);
        let outcome = switched.as_ref().map_or_else(PrepareError::reason, |()| "success");
        self.tools.observer.hardware(HardwareWork::SwitchMode, outcome, start.elapsed());
        switched?;
        self.tools.complete(record.clone())?;
        tracing::info!(card = %self.plan.card, to = on_or_off(mode.to), elapsed = ?start.elapsed(), "switched MIG mode");
        Ok(())
    }

    fn switch_to(&self, to: bool) -> Result<(), PrepareError> {
        let (card, uuid, device) =
            (self.plan.card, self.plan.identity.uuid.clone(), self.plan.device.clone());
        let at_once = switches_at_once(&*self.tools.nvml, card).map_err(|error| hardware(&device, error))?;
        if !at_once {
            return Err(PrepareError::ResetNeeded { device, uuid, to: on_or_off(to) });
        }
        switch_mode(self.tools, card, &uuid, &device, to)
    }

    fn partition(&self, make: &Make) -> Result<PartitionInstances, PrepareError> {
        let PartitionChange { profile_id, placement, .. } = make.change;
        let made =
            make_partition(&*self.tools.nvml, self.plan.card, profile_id, placement, make.compute_slices);
        let (instance, compute) = made.map_err(|error| match error {
            MakeError::GpuInstance(source) => self.refused(make, source),
            MakeError::ComputeInstance(source) => hardware(&make.device, source),
            MakeError::NoComputeInstance { offered } => PrepareError::ComputeSlices {
                device: make.device.clone(),
                profile: make.change.profile.clone(),
                asked: make.compute_slices.unwrap_or_default(),
                offered,
            },
        })?;
        let uuid = compute.uuid.ok_or_else(|| {
            let source = NvmlError::Nonsense {
                function: "nvmlDeviceGetMigDeviceHandleByIndex",
                value: format!("no handle for GPU instance {}, compute instance {}", instance.id, compute.id),
            };
            hardware(&make.device, source)
        })?;
        Ok(PartitionInstances { gpu_instance: instance.id, compute_instance: compute.id, uuid })
    }

    fn refused(&self, make: &Make, source: NvmlError) -> PrepareError {
        let card = self.plan.card;
        if source.is_insufficient_resources()
            && let Ok(instances) = self.tools.nvml.gpu_instances(card)
            && !instances.is_empty()
        {
            let profiles = self.tools.nvml.gpu_instance_profiles(card).ok().flatten().unwrap_or_default();
            return PrepareError::ForeignInstance {
                device: make.device.clone(),
                uuid: self.plan.identity.uuid.clone(),
                instances: describe(&instances.iter().collect::<Vec<_>>(), &profiles),
            };
        }
        hardware(&make.device, source)
    }
}

fn hardware(device: &str, source: NvmlError) -> PrepareError {
    PrepareError::Hardware { device: device.to_owned(), source }
}
