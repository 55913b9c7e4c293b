mod profiles;

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{self as sys, nvmlReturn_t};

use super::{Function, Functions, Handle, function};
use crate::error::NvmlError;
use crate::{MigMode, Placement};

/// Far more instances or placements than any card has; bounds buffers in case of a wrong answer.
const MOST: usize = 256;

/// NVML's handle of a GPU instance. Invalid once the instance is destroyed: looked up for each use.
#[derive(Clone, Copy)]
pub(in crate::library) struct GpuInstanceHandle(sys::nvmlGpuInstance_t);

/// NVML's handle of a compute instance, as above.
#[derive(Clone, Copy)]
pub(in crate::library) struct ComputeInstanceHandle(sys::nvmlComputeInstance_t);

/// The driver's answer about an instance.
pub(in crate::library) struct InstanceInfo {
    /// Of a compute instance: its MIG device (the older form of the call gives the card).
    pub(in crate::library) device: Handle,
    pub(in crate::library) id: u32,
    pub(in crate::library) profile_id: u32,
    pub(in crate::library) placement: Placement,
}

/// The fields common to both kinds of instances.
macro_rules! instance_info {
    ($info:expr) => {
        InstanceInfo {
            device: Handle($info.device),
            id: $info.id,
            profile_id: $info.profileId,
            placement: Placement { start: $info.placement.start, size: $info.placement.size },
        }
    };
}

impl<F: Copy> Function<'_, F> {
    /// The handle written by a call.
    fn handle<H>(&self, call: impl FnOnce(F, *mut *mut H) -> nvmlReturn_t) -> Result<*mut H, NvmlError> {
        let mut handle = std::ptr::null_mut();
        self.check(call(self.get()?, &raw mut handle))?;
        Ok(handle)
    }

    /// The handles written by a call, with their number. There is room for [`MOST`].
    fn handles<H>(
        &self,
        call: impl FnOnce(F, *mut *mut H, *mut c_uint) -> nvmlReturn_t,
    ) -> Result<Vec<*mut H>, NvmlError> {
        let mut handles = vec![std::ptr::null_mut(); MOST];
        let mut count = MOST as c_uint;
        self.check(call(self.get()?, handles.as_mut_ptr(), &raw mut count))?;
        if count as usize > MOST {
            return Err(self.nonsense(count));
        }
        handles.truncate(count as usize);
        Ok(handles)
    }
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
        // SAFETY: writes at most as many handles as instances of the profile can exist; there is room for more.
        let instances = function.handles(|get, to, count| unsafe { get(card.0, profile_id, to, count) })?;
        Ok(instances.into_iter().map(GpuInstanceHandle).collect())
    }

    pub(in crate::library) fn gpu_instance_by_id(
        &self,
        card: Handle,
        id: u32,
    ) -> Result<GpuInstanceHandle, NvmlError> {
        let function = function!(self, nvmlDeviceGetGpuInstanceById);
        // SAFETY: writes one handle.
        function.handle(|get, to| unsafe { get(card.0, id, to) }).map(GpuInstanceHandle)
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
        Ok(instance_info!(info))
    }

    pub(in crate::library) fn create_gpu_instance(
        &self,
        card: Handle,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceHandle, NvmlError> {
        let function = function!(self, nvmlDeviceCreateGpuInstanceWithPlacement);
        let placement = sys::nvmlGpuInstancePlacement_t { start: placement.start, size: placement.size };
        // SAFETY: reads one placement, writes one handle.
        let made =
            function.handle(|create, to| unsafe { create(card.0, profile_id, &raw const placement, to) });
        made.map(GpuInstanceHandle)
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

    /// The compute instances of one profile.
    pub(in crate::library) fn compute_instances(
        &self,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Result<Vec<ComputeInstanceHandle>, NvmlError> {
        let function = function!(self, nvmlGpuInstanceGetComputeInstances);
        // SAFETY: as for GPU instances.
        let instances =
            function.handles(|get, to, count| unsafe { get(instance.0, profile_id, to, count) })?;
        Ok(instances.into_iter().map(ComputeInstanceHandle).collect())
    }

    pub(in crate::library) fn compute_instance_by_id(
        &self,
        instance: GpuInstanceHandle,
        id: u32,
    ) -> Result<ComputeInstanceHandle, NvmlError> {
        let function = function!(self, nvmlGpuInstanceGetComputeInstanceById);
        // SAFETY: writes one handle.
        function.handle(|get, to| unsafe { get(instance.0, id, to) }).map(ComputeInstanceHandle)
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
        Ok(instance_info!(info))
    }

    pub(in crate::library) fn create_compute_instance(
        &self,
        instance: GpuInstanceHandle,
        profile_id: u32,
    ) -> Result<ComputeInstanceHandle, NvmlError> {
        let function = function!(self, nvmlGpuInstanceCreateComputeInstance);
        // SAFETY: writes one handle.
        let made = function.handle(|create, to| unsafe { create(instance.0, profile_id, to) });
        made.map(ComputeInstanceHandle)
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

    /// Maximum number of MIG devices of the card.
    pub(in crate::library) fn max_mig_devices(&self, card: Handle) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlDeviceGetMaxMigDeviceCount);
        let count = function.read(card, 0)?;
        if count as usize > MOST { Err(function.nonsense(count)) } else { Ok(count) }
    }

    /// `None` if no MIG device has this number now.
    pub(in crate::library) fn mig_device(
        &self,
        card: Handle,
        index: u32,
    ) -> Result<Option<Handle>, NvmlError> {
        let function = function!(self, nvmlDeviceGetMigDeviceHandleByIndex);
        // SAFETY: writes one handle.
        match function.handle(|get, to| unsafe { get(card.0, index, to) }) {
            Ok(device) => Ok(Some(Handle(device))),
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
