//! Profiles of instances, described by each version of the driver in a form of its own.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings as sys;

use super::super::device::version_of;
use super::super::{Functions, Handle, function};
use super::GpuInstanceHandle;
use crate::error::NvmlError;
use crate::library::text;

/// The driver's answer about a GPU instance profile, in any form.
pub(in crate::library) struct GpuInstanceProfileInfo {
    pub(in crate::library) id: u32,
    /// `None` before the second form, the first with names.
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

/// The driver's answer about a compute instance profile, in any form.
pub(in crate::library) struct ComputeInstanceProfileInfo {
    pub(in crate::library) id: u32,
    pub(in crate::library) compute_slices: u32,
    pub(in crate::library) max_instances: u32,
    pub(in crate::library) multiprocessors: u32,
}

/// The fields common to all forms of a GPU instance profile.
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

/// The fields common to all forms of a compute instance profile.
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
    /// `None` if the card has no such profile, or NVML no such number.
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

    /// `None` if the GPU instance has no such profile, or NVML no such number.
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
}

/// An answer in the newest form known to the driver; `None` for a missing profile.
///
/// For an unknown form a driver reports a version mismatch or an invalid argument. An unknown profile number is also
/// an invalid argument, so such a number is tried in every form.
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

/// `None` for an invalid name; the caller then derives the name.
fn name_of(buffer: &[c_char; 96]) -> Option<String> {
    text::from_buffer(&buffer.map(|byte| byte as u8)).ok()
}
