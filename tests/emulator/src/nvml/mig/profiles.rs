//! Possible GPU instances of a card.

use nvml_wrapper_sys::bindings::{
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t,
};

use super::super::call::nvml_functions;
use super::super::context::CardView;
use super::super::ffi::{Out, characters, struct_version};
use crate::failure::Failure;
use crate::hardware::mig::GpuInstanceProfile;
use crate::mig::gpu;

/// `NVML_GPU_INSTANCE_PROFILE_COUNT`: clients ask from 0 until a number is an invalid argument.
const PROFILES: u32 = 18;
/// `NVML_GPU_INSTANCE_PROFILE_CAPS_GFX`
const GRAPHICS: u32 = 2;
/// First driver branch with version 3 of the profile structs ("Changes between v535 and v545" of NVIDIA's NVML
/// reference).
const BRANCH_WITH_VERSION_3: u32 = 545;

fn enumerated<'view>(view: &CardView<'view>, enumerator: u32) -> Result<&'view GpuInstanceProfile, Failure> {
    if enumerator >= PROFILES {
        return Err(Failure::INVALID_ARGUMENT);
    }
    view.model()?.enumerated(enumerator).ok_or(Failure::NOT_SUPPORTED)
}

fn with_id<'view>(view: &CardView<'view>, id: u32) -> Result<&'view GpuInstanceProfile, Failure> {
    view.model()?.profile(id).ok_or(Failure::NOT_SUPPORTED)
}

/// Whether `version` is of a version 3 struct `T`, if supported by this machine's driver.
pub(super) fn is_version_3<T>(view: &CardView<'_>, version: u32) -> bool {
    let driver = &view.context.machine().driver.version;
    let branch: Option<u32> = driver.split('.').next().and_then(|branch| branch.parse().ok());
    version == struct_version::<T>(3) && branch.is_some_and(|branch| branch >= BRANCH_WITH_VERSION_3)
}

/// Captured profiles have no peer-to-peer. Values without a source are 0.
fn version_1(profile: &GpuInstanceProfile) -> nvmlGpuInstanceProfileInfo_t {
    nvmlGpuInstanceProfileInfo_t {
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.compute_slices,
        instanceCount: profile.max_instances,
        multiprocessorCount: profile.multiprocessors.unwrap_or(0),
        copyEngineCount: profile.copy_engines.unwrap_or(0),
        decoderCount: profile.decoders.unwrap_or(0),
        encoderCount: profile.encoders.unwrap_or(0),
        jpegCount: profile.jpeg_engines.unwrap_or(0),
        ofaCount: profile.ofa_engines.unwrap_or(0),
        memorySizeMB: profile.memory_mib.unwrap_or(0),
    }
}

/// Fills version 2 or 3, whichever the caller asks for. Other versions are an invalid argument (nvml.h).
fn versioned(
    view: &CardView<'_>,
    profile: &GpuInstanceProfile,
    info: Out<nvmlGpuInstanceProfileInfo_v2_t>,
) -> Result<(), Failure> {
    let version = info.cast::<u32>().get()?;
    let plain = version_1(profile);
    let name = characters(&format!("MIG {}", profile.name));
    if version == struct_version::<nvmlGpuInstanceProfileInfo_v2_t>(2) {
        return info.set(nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: plain.id,
            isP2pSupported: plain.isP2pSupported,
            sliceCount: plain.sliceCount,
            instanceCount: plain.instanceCount,
            multiprocessorCount: plain.multiprocessorCount,
            copyEngineCount: plain.copyEngineCount,
            decoderCount: plain.decoderCount,
            encoderCount: plain.encoderCount,
            jpegCount: plain.jpegCount,
            ofaCount: plain.ofaCount,
            memorySizeMB: plain.memorySizeMB,
            name,
        });
    }
    if !is_version_3::<nvmlGpuInstanceProfileInfo_v3_t>(view, version) {
        return Err(Failure::INVALID_ARGUMENT);
    }
    info.cast().set(nvmlGpuInstanceProfileInfo_v3_t {
        version,
        id: plain.id,
        sliceCount: plain.sliceCount,
        instanceCount: plain.instanceCount,
        multiprocessorCount: plain.multiprocessorCount,
        copyEngineCount: plain.copyEngineCount,
        decoderCount: plain.decoderCount,
        encoderCount: plain.encoderCount,
        jpegCount: plain.jpegCount,
        ofaCount: plain.ofaCount,
        memorySizeMB: plain.memorySizeMB,
        name,
        capabilities: if profile.graphics() { GRAPHICS } else { 0 },
    })
}

fn placements(
    view: &CardView<'_>,
    profile: u32,
    placements: Out<nvmlGpuInstancePlacement_t>,
    count: Out<u32>,
) -> Result<(), Failure> {
    let profile = with_id(view, profile)?;
    count.set(profile.starts.len() as u32)?;
    if placements.is_null() {
        return Ok(());
    }
    for (position, start) in profile.starts.iter().enumerate() {
        placements
            .at(position)?
            .set(nvmlGpuInstancePlacement_t { start: *start, size: profile.memory_slices })?;
    }
    Ok(())
}

nvml_functions! {
    /// `nvmlDeviceGetGpuInstanceProfileInfo`: with the mode on or off.
    fn nvmlDeviceGetGpuInstanceProfileInfo(view: CardView, profile: u32, info: Out<nvmlGpuInstanceProfileInfo_t>) {
        info.set(version_1(enumerated(&view, profile)?))
    }

    /// `nvmlDeviceGetGpuInstanceProfileInfoV`
    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        view: CardView,
        profile: u32,
        info: Out<nvmlGpuInstanceProfileInfo_v2_t>,
    ) {
        versioned(&view, enumerated(&view, profile)?, info)
    }

    /// `nvmlDeviceGetGpuInstanceProfileInfoByIdV`
    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        view: CardView,
        profile: u32,
        info: Out<nvmlGpuInstanceProfileInfo_v2_t>,
    ) {
        versioned(&view, with_id(&view, profile)?, info)
    }

    /// `nvmlDeviceGetGpuInstancePossiblePlacements`
    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        view: CardView,
        profile: u32,
        list: Out<nvmlGpuInstancePlacement_t>,
        count: Out<u32>,
    ) {
        placements(&view, profile, list, count)
    }

    /// `nvmlDeviceGetGpuInstancePossiblePlacements_v2`: all placements, free or not, with the mode on or off. `count`
    /// is only written (nvml.h): the caller's buffer must have room for all; a null list asks for the number.
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        view: CardView,
        profile: u32,
        list: Out<nvmlGpuInstancePlacement_t>,
        count: Out<u32>,
    ) {
        placements(&view, profile, list, count)
    }

    /// `nvmlDeviceGetGpuInstanceRemainingCapacity`
    fn nvmlDeviceGetGpuInstanceRemainingCapacity(view: CardView, profile: u32, count: Out<u32>) {
        let profile = with_id(&view, profile)?;
        if !view.state.mig.enabled {
            return Err(Failure::NOT_SUPPORTED);
        }
        count.set(gpu::remaining(view.model()?, &view.state.mig, profile))
    }
}
