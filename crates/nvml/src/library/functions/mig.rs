use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::device::version_of;
use super::{Functions, Handle, function};
use crate::error::NvmlError;
use crate::library::text;
use crate::{MigMode, Placement};

/// Far more instances or placements than any card has; bounds buffers in case of a wrong answer.
const MOST: usize = 256;

/// NVML's handle of a GPU instance. Invalid once the instance is destroyed: looked up for each use.
#[derive(Clone, Copy)]
pub(in crate::library) struct GpuInstanceHandle(sys::nvmlGpuInstance_t);

/// NVML's handle of a compute instance, as above.
#[derive(Clone, Copy)]
pub(in crate::library) struct ComputeInstanceHandle(sys::nvmlComputeInstance_t);

/// The driver's answer about a GPU instance profile, in whichever form.
pub(in crate::library) struct GpuInstanceProfileInfo {
    pub(in crate::library) id: u32,
    /// `None` before the second form, which brought names.
    pub(in crate::library) name: Option<String>,
    pub(in crate::library) compute_slices: u32,
    pub(in crate::library) max_instances: u32,
    pub(in crate::library) memory_mib: u64,
    pub(in crate::library) multiprocessors: u32,
    pub(in crate::library) copy_engines: u32,
    pub(in crate::library) decoders: u32,
    pub(in crate::library) encoders: u32,
    pub(in crate::library) jpeg_engines: u32,
    pub(in crate::library) ofa_engines: u32,
}

/// The driver's answer about a compute instance profile, in whichever form.
pub(in crate::library) struct ComputeInstanceProfileInfo {
    pub(in crate::library) id: u32,
    pub(in crate::library) compute_slices: u32,
    pub(in crate::library) max_instances: u32,
    pub(in crate::library) multiprocessors: u32,
}

/// The driver's answer about an instance.
pub(in crate::library) struct InstanceInfo {
    /// Of a compute instance: its MIG device (the older form of the call gives the card).
    pub(in crate::library) device: Handle,
    pub(in crate::library) id: u32,
    pub(in crate::library) profile_id: u32,
    pub(in crate::library) placement: Placement,
}

/// The fields that all forms of a GPU instance profile have.
macro_rules! gpu_instance_profile {
    ($info:expr, $name:expr) => {
        GpuInstanceProfileInfo {
            id: $info.id,
            name: $name,
            compute_slices: $info.sliceCount,
            max_instances: $info.instanceCount,
            memory_mib: $info.memorySizeMB,
            multiprocessors: $info.multiprocessorCount,
            copy_engines: $info.copyEngineCount,
            decoders: $info.decoderCount,
            encoders: $info.encoderCount,
            jpeg_engines: $info.jpegCount,
            ofa_engines: $info.ofaCount,
        }
    };
}

/// The fields that all forms of a compute instance profile have.
macro_rules! compute_instance_profile {
    ($info:expr) => {
        ComputeInstanceProfileInfo {
            id: $info.id,
            compute_slices: $info.sliceCount,
            max_instances: $info.instanceCount,
            multiprocessors: $info.multiprocessorCount,
        }
    };
}

impl Functions {
    /// The inner result is success if the requested mode is active.
    pub(in crate::library) fn set_mig_mode(
        &self,
        card: Handle,
        on: bool,
    ) -> Result<Result<(), NvmlError>, NvmlError> {
        let function = function!(self, nvmlDeviceSetMigMode);
        let set = function.get()?;
        let mode = if on { sys::NVML_DEVICE_MIG_ENABLE } else { sys::NVML_DEVICE_MIG_DISABLE };
        let mut activation = sys::nvmlReturn_enum_NVML_SUCCESS;
        // SAFETY: takes a number, writes one return code.
        function.check(unsafe { set(card.0, mode, &raw mut activation) })?;
        Ok(function.check(activation))
    }

    /// `None` where the card has no such profile, or NVML no such number.
    pub(in crate::library) fn gpu_instance_profile(
        &self,
        card: Handle,
        enumerator: u32,
    ) -> Result<Option<GpuInstanceProfileInfo>, NvmlError> {
        let versioned = function!(self, nvmlDeviceGetGpuInstanceProfileInfoV);
        let third = versioned.get().and_then(|get| {
            // SAFETY: the structure is made of integers and arrays of them, for which all bits zero is a value.
            let mut info: sys::nvmlGpuInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
            info.version = version_of::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3);
            // SAFETY: writes the form that `version` names, whatever the pointer's type says.
            versioned.check(unsafe { get(card.0, enumerator, (&raw mut info).cast()) })?;
            Ok(gpu_instance_profile!(info, name_of(&info.name)))
        });
        let second = || {
            versioned.get().and_then(|get| {
                // SAFETY: as above.
                let mut info: sys::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
                info.version = version_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2);
                // SAFETY: writes the form that `version` names.
                versioned.check(unsafe { get(card.0, enumerator, &raw mut info) })?;
                Ok(gpu_instance_profile!(info, name_of(&info.name)))
            })
        };
        let first = || {
            let function = function!(self, nvmlDeviceGetGpuInstanceProfileInfo);
            let get = function.get()?;
            // SAFETY: as above.
            let mut info: sys::nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: writes one such structure.
            function.check(unsafe { get(card.0, enumerator, &raw mut info) })?;
            Ok(gpu_instance_profile!(info, None))
        };
        offered(third, second, first)
    }

    pub(in crate::library) fn possible_placements(
        &self,
        card: Handle,
        profile_id: u32,
    ) -> Result<Vec<Placement>, NvmlError> {
        let function = function!(self, nvmlDeviceGetGpuInstancePossiblePlacements_v2);
        let get = function.get()?;
        let mut count = 0;
        // SAFETY: without a buffer it only writes the number.
        function.check(unsafe { get(card.0, profile_id, std::ptr::null_mut(), &raw mut count) })?;
        if count as usize > MOST {
            return Err(function.nonsense(count));
        }
        // The number of a profile's placements never changes, but the call takes no length, so its buffer must be
        // large.
        let mut placements = vec![sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; MOST];
        // SAFETY: writes as many records as it just said, and there is room for more.
        function.check(unsafe { get(card.0, profile_id, placements.as_mut_ptr(), &raw mut count) })?;
        placements.truncate(count as usize);
        Ok(placements.iter().map(|it| Placement { start: it.start, size: it.size }).collect())
    }

    /// The instances of one profile.
    pub(in crate::library) fn gpu_instances(
        &self,
        card: Handle,
        profile_id: u32,
    ) -> Result<Vec<GpuInstanceHandle>, NvmlError> {
        let function = function!(self, nvmlDeviceGetGpuInstances);
        let get = function.get()?;
        let mut instances = vec![std::ptr::null_mut(); MOST];
        let mut count = MOST as c_uint;
        // SAFETY: writes at most as many handles as instances of the profile can exist; there is room for more.
        function.check(unsafe { get(card.0, profile_id, instances.as_mut_ptr(), &raw mut count) })?;
        if count as usize > MOST {
            return Err(function.nonsense(count));
        }
        instances.truncate(count as usize);
        Ok(instances.into_iter().map(GpuInstanceHandle).collect())
    }

    pub(in crate::library) fn gpu_instance_by_id(
        &self,
        card: Handle,
        id: u32,
    ) -> Result<GpuInstanceHandle, NvmlError> {
        let function = function!(self, nvmlDeviceGetGpuInstanceById);
        let get = function.get()?;
        let mut instance = std::ptr::null_mut();
        // SAFETY: writes one handle.
        function.check(unsafe { get(card.0, id, &raw mut instance) })?;
        Ok(GpuInstanceHandle(instance))
    }

    pub(in crate::library) fn gpu_instance_info(
        &self,
        instance: GpuInstanceHandle,
    ) -> Result<InstanceInfo, NvmlError> {
        let function = function!(self, nvmlGpuInstanceGetInfo);
        let get = function.get()?;
        let mut info = sys::nvmlGpuInstanceInfo_t {
            device: std::ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: writes one such structure; NVML checks the handle.
        function.check(unsafe { get(instance.0, &raw mut info) })?;
        Ok(InstanceInfo {
            device: Handle(info.device),
            id: info.id,
            profile_id: info.profileId,
            placement: Placement { start: info.placement.start, size: info.placement.size },
        })
    }

    pub(in crate::library) fn create_gpu_instance(
        &self,
        card: Handle,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceHandle, NvmlError> {
        let function = function!(self, nvmlDeviceCreateGpuInstanceWithPlacement);
        let create = function.get()?;
        let placement = sys::nvmlGpuInstancePlacement_t { start: placement.start, size: placement.size };
        let mut instance = std::ptr::null_mut();
        // SAFETY: reads one placement, writes one handle.
        function.check(unsafe { create(card.0, profile_id, &raw const placement, &raw mut instance) })?;
        Ok(GpuInstanceHandle(instance))
    }

    pub(in crate::library) fn destroy_gpu_instance(
        &self,
        instance: GpuInstanceHandle,
    ) -> Result<(), NvmlError> {
        let function = function!(self, nvmlGpuInstanceDestroy);
        let destroy = function.get()?;
        // SAFETY: takes a handle, which NVML checks.
        function.check(unsafe { destroy(instance.0) })
    }

    /// `None` where the GPU instance has no such profile, or NVML no such number.
    pub(in crate::library) fn compute_instance_profile(
        &self,
        instance: GpuInstanceHandle,
        enumerator: u32,
    ) -> Result<Option<ComputeInstanceProfileInfo>, NvmlError> {
        let engines = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        let versioned = function!(self, nvmlGpuInstanceGetComputeInstanceProfileInfoV);
        let third = versioned.get().and_then(|get| {
            // SAFETY: the structure is made of integers and arrays of them, for which all bits zero is a value.
            let mut info: sys::nvmlComputeInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
            info.version = version_of::<sys::nvmlComputeInstanceProfileInfo_v3_t>(3);
            // SAFETY: writes the form that `version` names, whatever the pointer's type says.
            versioned.check(unsafe { get(instance.0, enumerator, engines, (&raw mut info).cast()) })?;
            Ok(compute_instance_profile!(info))
        });
        let second = || {
            versioned.get().and_then(|get| {
                // SAFETY: as above.
                let mut info: sys::nvmlComputeInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
                info.version = version_of::<sys::nvmlComputeInstanceProfileInfo_v2_t>(2);
                // SAFETY: writes the form that `version` names.
                versioned.check(unsafe { get(instance.0, enumerator, engines, &raw mut info) })?;
                Ok(compute_instance_profile!(info))
            })
        };
        let first = || {
            let function = function!(self, nvmlGpuInstanceGetComputeInstanceProfileInfo);
            let get = function.get()?;
            // SAFETY: as above.
            let mut info: sys::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: writes one such structure.
            function.check(unsafe { get(instance.0, enumerator, engines, &raw mut info) })?;
            Ok(compute_instance_profile!(info))
        };
        offered(third, second, first)
    }

    /// The compute instances of one profile.
    pub(in crate::library) fn compute_instances(
        &self,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Result<Vec<ComputeInstanceHandle>, NvmlError> {
        let function = function!(self, nvmlGpuInstanceGetComputeInstances);
        let get = function.get()?;
        let mut instances = vec![std::ptr::null_mut(); MOST];
        let mut count = MOST as c_uint;
        // SAFETY: writes at most as many handles as instances of the profile can exist; there is room for more.
        function.check(unsafe { get(instance.0, profile_id, instances.as_mut_ptr(), &raw mut count) })?;
        if count as usize > MOST {
            return Err(function.nonsense(count));
        }
        instances.truncate(count as usize);
        Ok(instances.into_iter().map(ComputeInstanceHandle).collect())
    }

    pub(in crate::library) fn compute_instance_by_id(
        &self,
        instance: GpuInstanceHandle,
        id: u32,
    ) -> Result<ComputeInstanceHandle, NvmlError> {
        let function = function!(self, nvmlGpuInstanceGetComputeInstanceById);
        let get = function.get()?;
        let mut compute = std::ptr::null_mut();
        // SAFETY: writes one handle.
        function.check(unsafe { get(instance.0, id, &raw mut compute) })?;
        Ok(ComputeInstanceHandle(compute))
    }

    pub(in crate::library) fn compute_instance_info(
        &self,
        instance: ComputeInstanceHandle,
    ) -> Result<InstanceInfo, NvmlError> {
        let function = function!(self, nvmlComputeInstanceGetInfo_v2);
        let get = function.get()?;
        let mut info = sys::nvmlComputeInstanceInfo_t {
            device: std::ptr::null_mut(),
            gpuInstance: std::ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: writes one such structure; NVML checks the handle.
        function.check(unsafe { get(instance.0, &raw mut info) })?;
        Ok(InstanceInfo {
            device: Handle(info.device),
            id: info.id,
            profile_id: info.profileId,
            placement: Placement { start: info.placement.start, size: info.placement.size },
        })
    }

    pub(in crate::library) fn create_compute_instance(
        &self,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Result<ComputeInstanceHandle, NvmlError> {
        let function = function!(self, nvmlGpuInstanceCreateComputeInstance);
        let create = function.get()?;
        let mut compute = std::ptr::null_mut();
        // SAFETY: writes one handle.
        function.check(unsafe { create(instance.0, profile_id, &raw mut compute) })?;
        Ok(ComputeInstanceHandle(compute))
    }

    pub(in crate::library) fn destroy_compute_instance(
        &self,
        instance: ComputeInstanceHandle,
    ) -> Result<(), NvmlError> {
        let function = function!(self, nvmlComputeInstanceDestroy);
        let destroy = function.get()?;
        // SAFETY: takes a handle, which NVML checks.
        function.check(unsafe { destroy(instance.0) })
    }

    /// How many MIG devices the card can have at most.
    pub(in crate::library) fn max_mig_devices(&self, card: Handle) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlDeviceGetMaxMigDeviceCount);
        let count = function.read(card, 0)?;
        if count as usize > MOST { Err(function.nonsense(count)) } else { Ok(count) }
    }

    /// `None` where there is none of this number now.
    pub(in crate::library) fn mig_device(
        &self,
        card: Handle,
        index: u32,
    ) -> Result<Option<Handle>, NvmlError> {
        let function = function!(self, nvmlDeviceGetMigDeviceHandleByIndex);
        let get = function.get()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: writes one handle.
        match function.check(unsafe { get(card.0, index, &raw mut device) }) {
            Ok(()) => Ok(Some(Handle(device))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The ids of GPU instance and compute instance of a MIG device.
    pub(in crate::library) fn instance_ids(&self, mig_device: Handle) -> Result<(u32, u32), NvmlError> {
        let gpu_instance = function!(self, nvmlDeviceGetGpuInstanceId).read(mig_device, 0)?;
        let compute_instance = function!(self, nvmlDeviceGetComputeInstanceId).read(mig_device, 0)?;
        Ok((gpu_instance, compute_instance))
    }

    pub(in crate::library) fn is_mig_device(&self, device: Handle) -> Result<bool, NvmlError> {
        if device.0.is_null() {
            return Ok(false);
        }
        function!(self, nvmlDeviceIsMigDeviceHandle).read(device, 0).map(|is| is != 0)
    }

    pub(in crate::library) fn mig_mode(&self, card: Handle) -> Result<MigMode, NvmlError> {
        let function = function!(self, nvmlDeviceGetMigMode);
        let get = function.get()?;
        let (mut current, mut pending) = (0, 0);
        // SAFETY: writes two unsigned ints.
        function.check(unsafe { get(card.0, &raw mut current, &raw mut pending) })?;
        let on = |mode| match mode {
            sys::NVML_DEVICE_MIG_DISABLE => Ok(false),
            sys::NVML_DEVICE_MIG_ENABLE => Ok(true),
            other => Err(function.nonsense(other)),
        };
        Ok(MigMode { current: on(current)?, pending: on(pending)? })
    }
}

/// The newest form of an answer that the driver knows; `None` where there is no such profile.
///
/// For an unknown form a driver reports a version mismatch or an invalid argument. It also reports an invalid
/// argument for an unknown profile number, so such a number is tried in every form.
fn offered<T>(
    third: Result<T, NvmlError>,
    second: impl FnOnce() -> Result<T, NvmlError>,
    first: impl FnOnce() -> Result<T, NvmlError>,
) -> Result<Option<T>, NvmlError> {
    let mut answer = third;
    if answer.as_ref().is_err_and(is_unknown_form) {
        answer = second();
    }
    if answer.as_ref().is_err_and(is_unknown_form) {
        answer = first();
    }
    match answer {
        Ok(profile) => Ok(Some(profile)),
        Err(NvmlError::Call {
            code:
                sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED | sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_unknown_form(error: &NvmlError) -> bool {
    match error {
        NvmlError::MissingFunction { .. } => true,
        NvmlError::Call { code, .. } => matches!(
            *code,
            sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                | sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT
                | sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND
        ),
        _ => false,
    }
}

/// `None` if it is not a name, which is then derived.
fn name_of(buffer: &[c_char; 96]) -> Option<String> {
    text::from_buffer(&buffer.map(|byte| byte as u8)).ok()
}
