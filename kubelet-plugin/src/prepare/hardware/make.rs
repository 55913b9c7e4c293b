use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tessera_nvml::{ComputeInstance, ComputeInstanceProfile, GpuInstance, NvmlError};

use super::clients::clients;
use super::instances::describe;
use super::plan::{CardPlan, Make};
use super::{Tools, on_or_off};
use crate::prepare::{HardwareWork, PrepareError};
use tessera_journal::{HardwareChange, HardwareRecord, PartitionChange, PartitionInstances, Stage};

/// Carries out a plan whose intents are on the disk, but for its shares, and completes their records. Gives the partitions
/// by the ids of their records. Blocks, for seconds.
///
/// After an error, whatever was made is undone by [`unmake`](super::unmake()) of the plan's records.
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
        // Of another boot it would not be believed: it need only survive this process.
        tools.journal.put_hardware_unsynced(&HardwareRecord {
            stage: Stage::Complete,
            change: HardwareChange::MigPartition(change).to_map(),
            ..make.record.clone()
        })?;
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
        let complete = HardwareRecord { stage: Stage::Complete, ..record.clone() };
        self.tools.journal.put_hardware_unsynced(&complete)?;
        tracing::info!(card = %self.plan.card, to = on_or_off(mode.to), elapsed = ?start.elapsed(), "switched MIG mode");
        Ok(())
    }

    fn switch_to(&self, to: bool) -> Result<(), PrepareError> {
        let (card, uuid, device) =
            (self.plan.card, self.plan.identity.uuid.clone(), self.plan.device.clone());
        let at_once = self.tools.switches_at_once(card).map_err(|error| self.hardware(&device, error))?;
        if !at_once {
            return Err(PrepareError::ResetNeeded { device, uuid, to: on_or_off(to) });
        }
        switch_mode(self.tools, card, &uuid, &device, to)
    }

    fn partition(&self, make: &Make) -> Result<PartitionInstances, PrepareError> {
        let (nvml, card) = (&self.tools.nvml, self.plan.card);
        let placement = make.change.placement;
        let instance = nvml
            .create_gpu_instance(card, make.change.profile_id, placement)
            .map_err(|error| self.refused(make, error))?;
        if instance.placement != placement || instance.profile_id != make.change.profile_id {
            // By its placement it could not be found again.
            let _ = nvml.destroy_gpu_instance(card, instance.id);
            let source = NvmlError::Nonsense {
                function: "nvmlDeviceCreateGpuInstanceWithPlacement",
                value: format!("profile {} at {:?}", instance.profile_id, instance.placement),
            };
            return Err(self.hardware(&make.device, source));
        }
        let profile = self.compute_profile(make, &instance)?;
        let compute = nvml
            .create_compute_instance(card, instance.id, profile.id)
            .map_err(|error| self.hardware(&make.device, error))?;
        let uuid = self.uuid(make, &instance, &compute)?;
        Ok(PartitionInstances { gpu_instance: instance.id, compute_instance: compute.id, uuid })
    }

    /// The profile of the compute instance: as wide as was asked for, or as the GPU instance.
    fn compute_profile(
        &self,
        make: &Make,
        instance: &GpuInstance,
    ) -> Result<ComputeInstanceProfile, PrepareError> {
        let offered = self.tools.nvml.compute_instance_profiles(self.plan.card, instance.id);
        let offered = offered.map_err(|error| self.hardware(&make.device, error))?;
        ComputeInstanceProfile::of_width(&offered, make.compute_slices).ok_or_else(|| {
            let possible = offered.iter().filter(|profile| profile.max_instances > 0);
            let widths: BTreeSet<u32> = possible.map(|profile| profile.compute_slices).collect();
            PrepareError::ComputeSlices {
                device: make.device.clone(),
                profile: make.change.profile.clone(),
                asked: make.compute_slices.unwrap_or_default(),
                offered: widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            }
        })
    }

    fn uuid(
        &self,
        make: &Make,
        instance: &GpuInstance,
        compute: &ComputeInstance,
    ) -> Result<String, PrepareError> {
        compute.uuid.clone().ok_or_else(|| {
            let source = NvmlError::Nonsense {
                function: "nvmlDeviceGetMigDeviceHandleByIndex",
                value: format!("no handle for GPU instance {}, compute instance {}", instance.id, compute.id),
            };
            self.hardware(&make.device, source)
        })
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
        self.hardware(&make.device, source)
    }

    fn hardware(&self, device: &str, source: NvmlError) -> PrepareError {
        PrepareError::Hardware { device: device.to_owned(), source }
    }
}

/// Switches a card's mode, and sees that it is switched. An order that the driver only keeps for the next reset is taken
/// back.
pub(super) fn switch_mode(
    tools: &Tools,
    card: tessera_api::PciBusId,
    uuid: &str,
    device: &str,
    to: bool,
) -> Result<(), PrepareError> {
    let failed = |error: NvmlError| {
        if error.is_in_use() {
            PrepareError::CardBusy {
                device: device.to_owned(),
                uuid: uuid.to_owned(),
                to: on_or_off(to),
                clients: clients(tools, card, None),
            }
        } else {
            PrepareError::Hardware { device: device.to_owned(), source: error }
        }
    };
    let switch = tools.nvml.set_mig_mode(card, to).map_err(failed)?;
    if switch.mode.current == to {
        return Ok(());
    }
    if switch.mode.pending == to {
        let _ = tools.nvml.set_mig_mode(card, !to);
    }
    Err(match switch.not_active {
        Some(error) => failed(error),
        None => {
            PrepareError::ResetNeeded { device: device.to_owned(), uuid: uuid.to_owned(), to: on_or_off(to) }
        }
    })
}
