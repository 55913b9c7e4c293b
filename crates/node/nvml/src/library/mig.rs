//! MIG over the library's functions. Instances are named by their ids. The driver's handles become invalid with the instances,
//! so a handle is looked up for each call.

mod name;
mod profiles;

use nvml_wrapper_sys::bindings as sys;

use super::Session;
use super::functions::{ComputeInstanceHandle, Functions, GpuInstanceHandle, Handle};
use crate::error::NvmlError;
use crate::{ComputeInstance, ComputeInstanceProfile, GpuInstance, MigModeSwitch, Placement};
use tessera_api::PciBusId;

pub(super) use profiles::Profiles;

/// Retries of listing when an instance is destroyed meanwhile.
const RETRIES: usize = 4;

/// The MIG side of the card at an address.
pub(super) struct Mig<'session> {
    session: &'session Session,
    address: PciBusId,
}

impl super::Library {
    pub(super) fn mig(&self, address: PciBusId) -> Mig<'_> {
        Mig { session: &self.session, address }
    }
}

impl Mig<'_> {
    fn card(&self) -> Result<(&Functions, Handle), NvmlError> {
        let functions = &self.session.functions;
        self.session.handles.get(functions, self.address).map(|card| (functions, card))
    }

    pub(super) fn set_mode(&self, on: bool) -> Result<MigModeSwitch, NvmlError> {
        let (functions, card) = self.card()?;
        let before = functions.mig_mode(card)?;
        if before.current == on && before.pending == on {
            return Ok(MigModeSwitch { mode: before, not_active: None });
        }
        let activation = functions.set_mig_mode(card, on)?;
        // Switching without a reset detaches the driver from the card and attaches the driver again: the handle may be a new
        // one.
        let (functions, card) = self.card()?;
        let mode = functions.mig_mode(card)?;
        // On Ampere the driver may report either success or that a reset is required; the pending mode is more
        // reliable.
        let waits = mode.pending == on && mode.current != on;
        let not_active = activation.err().filter(|error| !(waits && error.is_reset_required()));
        Ok(MigModeSwitch { mode, not_active })
    }

    pub(super) fn compute_instance_profiles(
        &self,
        gpu_instance: u32,
    ) -> Result<Vec<ComputeInstanceProfile>, NvmlError> {
        let (functions, card) = self.card()?;
        let instance = functions.gpu_instance_by_id(card, gpu_instance)?;
        let profile = functions.gpu_instance_info(instance)?.profile_id;
        let profiles = &self.session.profiles;
        profiles.of_gpu_instance(functions, card, instance, profile).map(|profiles| profiles.to_vec())
    }

    pub(super) fn gpu_instances(&self) -> Result<Vec<GpuInstance>, NvmlError> {
        let mut instances = self.list();
        for _ in 0..RETRIES {
            match &instances {
                Err(error) if is_stale(error) => instances = self.list(),
                _ => break,
            }
        }
        instances
    }

    fn list(&self) -> Result<Vec<GpuInstance>, NvmlError> {
        let (functions, card) = self.card()?;
        if !NvmlError::reading(functions.mig_mode(card))?.is_some_and(|mode| mode.current) {
            return Ok(Vec::new());
        }
        let mut instances: Vec<GpuInstance> = Vec::new();
        for profile in self.gpu_instance_profiles()?.iter().flat_map(|profiles| profiles.iter()) {
            for handle in functions.gpu_instances(card, profile.id)? {
                instances.push(self.gpu_instance(functions, card, handle)?);
            }
        }
        instances.sort_by_key(|instance| instance.id);
        instances.dedup_by_key(|instance| instance.id);
        Ok(instances)
    }

    fn gpu_instance(
        &self,
        functions: &Functions,
        card: Handle,
        handle: GpuInstanceHandle,
    ) -> Result<GpuInstance, NvmlError> {
        let info = functions.gpu_instance_info(handle)?;
        let mut compute_instances: Vec<ComputeInstance> = Vec::new();
        let profiles = &self.session.profiles;
        for profile in profiles.of_gpu_instance(functions, card, handle, info.profile_id)?.iter() {
            for compute in functions.compute_instances(handle, profile.id)? {
                let multiprocessors = Some(profile.multiprocessors);
                compute_instances.push(compute_instance(functions, card, info.id, compute, multiprocessors)?);
            }
        }
        compute_instances.sort_by_key(|compute| compute.id);
        compute_instances.dedup_by_key(|compute| compute.id);
        Ok(GpuInstance {
            id: info.id,
            profile_id: info.profile_id,
            placement: info.placement,
            compute_instances,
        })
    }

    pub(super) fn create_gpu_instance(
        &self,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance, NvmlError> {
        let (functions, card) = self.card()?;
        let handle = functions.create_gpu_instance(card, profile_id, placement)?;
        let info = functions.gpu_instance_info(handle)?;
        Ok(GpuInstance {
            id: info.id,
            profile_id: info.profile_id,
            placement: info.placement,
            compute_instances: Vec::new(),
        })
    }

    pub(super) fn destroy_gpu_instance(&self, gpu_instance: u32) -> Result<(), NvmlError> {
        let (functions, card) = self.card()?;
        functions.destroy_gpu_instance(functions.gpu_instance_by_id(card, gpu_instance)?)
    }

    pub(super) fn create_compute_instance(
        &self,
        gpu_instance: u32,
        profile_id: u32,
    ) -> Result<ComputeInstance, NvmlError> {
        let (functions, card) = self.card()?;
        let instance = functions.gpu_instance_by_id(card, gpu_instance)?;
        let compute = functions.create_compute_instance(instance, profile_id)?;
        let multiprocessors = self.multiprocessors(functions, card, instance, profile_id);
        compute_instance(functions, card, gpu_instance, compute, multiprocessors)
    }

    /// Multiprocessors of a profile of compute instances; `None` if unreadable.
    fn multiprocessors(
        &self,
        functions: &Functions,
        card: Handle,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Option<u32> {
        let gpu_profile = functions.gpu_instance_info(instance).ok()?.profile_id;
        let profiles = self.session.profiles.of_gpu_instance(functions, card, instance, gpu_profile).ok()?;
        let profile = profiles.iter().find(|profile| profile.id == profile_id)?;
        Some(profile.multiprocessors)
    }

    pub(super) fn destroy_compute_instance(
        &self,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> Result<(), NvmlError> {
        let (functions, card) = self.card()?;
        let instance = functions.gpu_instance_by_id(card, gpu_instance)?;
        functions.destroy_compute_instance(functions.compute_instance_by_id(instance, compute_instance)?)
    }
}

fn compute_instance(
    functions: &Functions,
    card: Handle,
    gpu_instance: u32,
    handle: ComputeInstanceHandle,
    multiprocessors: Option<u32>,
) -> Result<ComputeInstance, NvmlError> {
    let info = functions.compute_instance_info(handle)?;
    let device = match is_device_of(functions, info.device, gpu_instance, info.id)? {
        true => Some(info.device),
        false => find_device(functions, card, gpu_instance, info.id)?,
    };
    let uuid = device.map(|device| functions.uuid(device)).transpose()?;
    Ok(ComputeInstance {
        id: info.id,
        profile_id: info.profile_id,
        placement: info.placement,
        multiprocessors,
        uuid,
    })
}

/// Whether a handle belongs to the MIG device of these two instances.
fn is_device_of(
    functions: &Functions,
    device: Handle,
    gpu_instance: u32,
    compute_instance: u32,
) -> Result<bool, NvmlError> {
    Ok(functions.is_mig_device(device)?
        && functions.instance_ids(device)? == (gpu_instance, compute_instance))
}

/// Searches all MIG devices of a card, whose indexes may have gaps. Indexes shift when a device is destroyed, so the
/// search is done twice.
fn find_device(
    functions: &Functions,
    card: Handle,
    gpu_instance: u32,
    compute_instance: u32,
) -> Result<Option<Handle>, NvmlError> {
    let most = functions.max_mig_devices(card)?;
    for index in (0..most).chain(0..most) {
        let Some(device) = functions.mig_device(card, index)? else { continue };
        match functions.instance_ids(device) {
            Ok(ids) if ids == (gpu_instance, compute_instance) => return Ok(Some(device)),
            Ok(_) => {}
            // Another device, destroyed meanwhile.
            Err(error) if is_stale(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The handle's object may be gone.
pub(super) fn is_stale(error: &NvmlError) -> bool {
    let invalid = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    error.is_not_found() || matches!(error, NvmlError::Call { code, .. } if *code == invalid)
}
