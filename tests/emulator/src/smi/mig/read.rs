//! Reads partitions from NVML.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceInfo_t, nvmlComputeInstanceProfileInfo_v2_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_v2_t,
};

use super::super::card::Reading;
use super::super::library::{Library, SmiError};
use crate::nvml::ffi::struct_version;

/// `nvmlGpuInstance_t` or `nvmlComputeInstance_t`.
pub(super) type Handle = *mut std::ffi::c_void;

/// Profiles are queried by number from 0 until one is invalid; this is more than any card has.
const MOST_PROFILES: u32 = 64;
/// `NVML_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: u32 = 3;

/// A kind of GPU instance or compute instance.
pub(super) struct Profile {
    pub id: u32,
    /// Without `MIG `.
    pub name: String,
    pub slices: u32,
    pub most: u32,
    pub memory_mib: u64,
    pub multiprocessors: u32,
    /// Copy engines, decoders, encoders, JPEG, OFA.
    pub engines: [u32; 5],
}

/// A GPU instance.
pub(super) struct GpuInstance {
    pub handle: Handle,
    pub id: u32,
    pub profile: u32,
    pub name: String,
    pub start: u32,
    pub size: u32,
}

/// A compute instance.
pub(super) struct ComputeInstance {
    pub handle: Handle,
    pub id: u32,
    pub profile: u32,
    pub name: String,
    pub start: u32,
    pub size: u32,
}

fn name(characters: &[std::ffi::c_char]) -> String {
    let bytes = characters.iter().map(|character| *character as u8).take_while(|byte| *byte != 0);
    let text = String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned();
    text.strip_prefix("MIG ").map(str::to_owned).unwrap_or(text)
}

/// The profiles of a card.
pub(super) fn profiles(library: &Library, reading: &Reading) -> Result<Vec<Profile>, SmiError> {
    let mut found = Vec::new();
    for number in 0..MOST_PROFILES {
        // SAFETY: integers and characters, so zeros are valid.
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = struct_version::<nvmlGpuInstanceProfileInfo_v2_t>(2);
        match library.fill_of("nvmlDeviceGetGpuInstanceProfileInfoV", reading.device, number, &mut info) {
            Ok(()) => found.push(Profile {
                id: info.id,
                name: name(&info.name),
                slices: info.sliceCount,
                most: info.instanceCount,
                memory_mib: info.memorySizeMB,
                multiprocessors: info.multiprocessorCount,
                engines: [
                    info.copyEngineCount,
                    info.decoderCount,
                    info.encoderCount,
                    info.jpegCount,
                    info.ofaCount,
                ],
            }),
            Err(NOT_SUPPORTED) => {}
            Err(_) => break,
        }
    }
    let found = if found.is_empty() { Err(NOT_SUPPORTED) } else { Ok(found) };
    library.named("Failed to get GPU instance profiles", found)
}

/// Where instances of a profile can lie, as (start, size).
pub(super) fn placements(
    library: &Library,
    reading: &Reading,
    profile: &Profile,
) -> Result<Vec<(u32, u32)>, SmiError> {
    let empty = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let found =
        library.instances("nvmlDeviceGetGpuInstancePossiblePlacements_v2", reading.device, profile.id, empty);
    let found = library.named("Failed to get GPU instance placements", found)?;
    Ok(found.iter().map(|placement| (placement.start, placement.size)).collect())
}

/// The GPU instances of a card, by id.
pub(super) fn gpu_instances(library: &Library, reading: &Reading) -> Result<Vec<GpuInstance>, SmiError> {
    let mut found = Vec::new();
    for profile in profiles(library, reading)? {
        let handles =
            library.instances("nvmlDeviceGetGpuInstances", reading.device, profile.id, std::ptr::null_mut());
        for handle in library.named("Failed to get GPU instances", handles)? {
            // SAFETY: integers and pointers, so zeros are valid.
            let mut info: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
            // An instance destroyed meanwhile is left out.
            if library.fill("nvmlGpuInstanceGetInfo", handle, &mut info).is_ok() {
                let (start, size) = (info.placement.start, info.placement.size);
                let name = profile.name.clone();
                found.push(GpuInstance { handle, id: info.id, profile: profile.id, name, start, size });
            }
        }
    }
    found.sort_by_key(|gpu| gpu.id);
    Ok(found)
}

/// Compute profiles of a GPU instance.
pub(super) fn compute_profiles(library: &Library, gpu: &GpuInstance) -> Vec<Profile> {
    let mut found = Vec::new();
    for number in 0..MOST_PROFILES {
        // SAFETY: integers and characters, so zeros are valid.
        let mut info: nvmlComputeInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = struct_version::<nvmlComputeInstanceProfileInfo_v2_t>(2);
        match library.compute_profile(gpu.handle, number, &mut info) {
            Ok(()) => found.push(Profile {
                id: info.id,
                name: name(&info.name),
                slices: info.sliceCount,
                most: info.instanceCount,
                memory_mib: 0,
                multiprocessors: info.multiprocessorCount,
                engines: [
                    info.sharedCopyEngineCount,
                    info.sharedDecoderCount,
                    info.sharedEncoderCount,
                    info.sharedJpegCount,
                    info.sharedOfaCount,
                ],
            }),
            Err(NOT_SUPPORTED) => {}
            Err(_) => break,
        }
    }
    found
}

/// The compute instances of a GPU instance, by id.
pub(super) fn compute_instances(
    library: &Library,
    gpu: &GpuInstance,
) -> Result<Vec<ComputeInstance>, SmiError> {
    let mut found = Vec::new();
    for profile in compute_profiles(library, gpu) {
        let function = "nvmlGpuInstanceGetComputeInstances";
        let handles = library.instances(function, gpu.handle, profile.id, std::ptr::null_mut());
        for handle in library.named("Failed to get compute instances", handles)? {
            // SAFETY: integers and pointers, so zeros are valid.
            let mut info: nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
            if library.fill("nvmlComputeInstanceGetInfo_v2", handle, &mut info).is_ok() {
                let (start, size) = (info.placement.start, info.placement.size);
                let name = profile.name.clone();
                found.push(ComputeInstance { handle, id: info.id, profile: profile.id, name, start, size });
            }
        }
    }
    found.sort_by_key(|compute| compute.id);
    Ok(found)
}
