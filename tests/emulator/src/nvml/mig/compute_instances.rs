//! Compute instances of a GPU instance.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t,
    nvmlComputeInstanceProfileInfo_v2_t, nvmlComputeInstanceProfileInfo_v3_t,
};

use super::super::call::nvml_functions;
use super::super::context::{GpuInstanceView, MigView};
use super::super::ffi::{Out, characters, struct_version};
use super::super::handle::{Handle, Object};
use crate::failure::Failure;
use crate::mig::compute::{self, ComputeProfile, PROFILES};
use crate::state::mig::{ComputeInstance, GpuInstance};

/// `NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX`
const GRAPHICS: u32 = 1;

/// Struct of `nvmlComputeInstanceGetInfo`: the placement came with version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InfoV1 {
    device: Handle,
    gpu_instance: Handle,
    id: u32,
    profile: u32,
}

fn handle(gpu: &GpuInstanceView<'_>, serial: u64) -> Handle {
    Handle::to(Object::ComputeInstance(gpu.view.card.index, serial))
}

fn with_id(gpu: &GpuInstanceView<'_>, id: u32) -> Result<ComputeProfile, Failure> {
    let mut offered = compute::profiles(gpu.model, gpu.profile).into_iter();
    offered.find(|profile| profile.id == id).ok_or(Failure::NOT_SUPPORTED)
}

fn enumerated(
    gpu: &GpuInstanceView<'_>,
    profile: u32,
    engine_profile: u32,
) -> Result<ComputeProfile, Failure> {
    // NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED is the only one there is.
    if profile >= PROFILES || engine_profile != 0 {
        return Err(Failure::INVALID_ARGUMENT);
    }
    with_id(gpu, profile)
}

fn version_1(gpu: &GpuInstanceView<'_>, profile: &ComputeProfile) -> nvmlComputeInstanceProfileInfo_t {
    nvmlComputeInstanceProfileInfo_t {
        id: profile.id,
        sliceCount: profile.slices,
        instanceCount: profile.starts.len() as u32,
        multiprocessorCount: profile.multiprocessors.unwrap_or(0),
        sharedCopyEngineCount: gpu.profile.copy_engines.unwrap_or(0),
        sharedDecoderCount: gpu.profile.decoders.unwrap_or(0),
        sharedEncoderCount: gpu.profile.encoders.unwrap_or(0),
        sharedJpegCount: gpu.profile.jpeg_engines.unwrap_or(0),
        sharedOfaCount: gpu.profile.ofa_engines.unwrap_or(0),
    }
}

fn versioned(
    gpu: &GpuInstanceView<'_>,
    profile: &ComputeProfile,
    info: Out<nvmlComputeInstanceProfileInfo_v2_t>,
) -> Result<(), Failure> {
    let version = info.cast::<u32>().get()?;
    let plain = version_1(gpu, profile);
    let name = characters(&format!("MIG {}", compute::name(gpu.profile, profile.slices)));
    if version == struct_version::<nvmlComputeInstanceProfileInfo_v2_t>(2) {
        return info.set(nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: plain.id,
            sliceCount: plain.sliceCount,
            instanceCount: plain.instanceCount,
            multiprocessorCount: plain.multiprocessorCount,
            sharedCopyEngineCount: plain.sharedCopyEngineCount,
            sharedDecoderCount: plain.sharedDecoderCount,
            sharedEncoderCount: plain.sharedEncoderCount,
            sharedJpegCount: plain.sharedJpegCount,
            sharedOfaCount: plain.sharedOfaCount,
            name,
        });
    }
    if !super::profiles::is_version_3::<nvmlComputeInstanceProfileInfo_v3_t>(&gpu.view, version) {
        return Err(Failure::INVALID_ARGUMENT);
    }
    info.cast().set(nvmlComputeInstanceProfileInfo_v3_t {
        version,
        id: plain.id,
        sliceCount: plain.sliceCount,
        instanceCount: plain.instanceCount,
        multiprocessorCount: plain.multiprocessorCount,
        sharedCopyEngineCount: plain.sharedCopyEngineCount,
        sharedDecoderCount: plain.sharedDecoderCount,
        sharedEncoderCount: plain.sharedEncoderCount,
        sharedJpegCount: plain.sharedJpegCount,
        sharedOfaCount: plain.sharedOfaCount,
        name,
        capabilities: if gpu.profile.graphics() { GRAPHICS } else { 0 },
    })
}

fn create(
    gpu: &GpuInstanceView<'_>,
    profile: u32,
    placement: Option<(u32, u32)>,
    instance: Out<Handle>,
) -> Result<(), Failure> {
    if instance.is_null() {
        return Err(Failure::INVALID_ARGUMENT);
    }
    let of = gpu.instance.serial;
    let serial =
        gpu.view.partition(|model, card| compute::create(model, &mut card.mig, of, profile, placement))?;
    instance.set(handle(gpu, serial))
}

/// The device is the instance's MIG device, not its card: NVIDIA's DRA driver and others query its UUID.
fn info(compute: &MigView<'_>) -> nvmlComputeInstanceInfo_t {
    let (gpu, instance) = (&compute.gpu, compute.instance);
    let card = gpu.view.card.index;
    nvmlComputeInstanceInfo_t {
        device: Handle::to(Object::MigDevice(card, instance.serial)).raw().cast(),
        gpuInstance: Handle::to(Object::GpuInstance(card, gpu.instance.serial)).raw().cast(),
        id: instance.id,
        profileId: instance.profile,
        placement: nvmlComputeInstancePlacement_t { start: instance.start, size: instance.size },
    }
}

nvml_functions! {
    /// `nvmlGpuInstanceGetComputeInstanceProfileInfo`
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        gpu: GpuInstanceView,
        profile: u32,
        engine_profile: u32,
        info: Out<nvmlComputeInstanceProfileInfo_t>,
    ) {
        info.set(version_1(&gpu, &enumerated(&gpu, profile, engine_profile)?))
    }

    /// `nvmlGpuInstanceGetComputeInstanceProfileInfoV`
    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        gpu: GpuInstanceView,
        profile: u32,
        engine_profile: u32,
        info: Out<nvmlComputeInstanceProfileInfo_v2_t>,
    ) {
        versioned(&gpu, &enumerated(&gpu, profile, engine_profile)?, info)
    }

    /// `nvmlGpuInstanceGetComputeInstanceRemainingCapacity`
    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gpu: GpuInstanceView, profile: u32, count: Out<u32>) {
        count.set(compute::remaining(gpu.instance, &with_id(&gpu, profile)?))
    }

    /// `nvmlGpuInstanceGetComputeInstancePossiblePlacements`: all placements, free or not; `count` is only written.
    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        gpu: GpuInstanceView,
        profile: u32,
        placements: Out<nvmlComputeInstancePlacement_t>,
        count: Out<u32>,
    ) {
        let profile = with_id(&gpu, profile)?;
        count.set(profile.starts.len() as u32)?;
        if placements.is_null() {
            return Ok(());
        }
        for (position, start) in profile.starts.iter().enumerate() {
            placements
                .at(position)?
                .set(nvmlComputeInstancePlacement_t { start: *start, size: profile.slices })?;
        }
        Ok(())
    }

    /// `nvmlGpuInstanceGetComputeInstances`: `count` is only written.
    fn nvmlGpuInstanceGetComputeInstances(
        gpu: GpuInstanceView,
        profile: u32,
        instances: Out<Handle>,
        count: Out<u32>,
    ) {
        with_id(&gpu, profile)?;
        let found: Vec<Handle> = gpu
            .instance
            .compute_instances
            .iter()
            .filter(|instance| instance.profile == profile)
            .map(|instance| handle(&gpu, instance.serial))
            .collect();
        super::give(&found, instances, count)
    }

    /// `nvmlGpuInstanceGetComputeInstanceById`
    fn nvmlGpuInstanceGetComputeInstanceById(gpu: GpuInstanceView, id: u32, instance: Out<Handle>) {
        let found = gpu.instance.compute_instances.iter().find(|instance| instance.id == id);
        instance.set(handle(&gpu, found.ok_or(Failure::NOT_FOUND)?.serial))
    }
}

nvml_functions! {
    /// `nvmlGpuInstanceCreateComputeInstance`
    fn nvmlGpuInstanceCreateComputeInstance(gpu: GpuInstanceViewInTurn, profile: u32, instance: Out<Handle>) {
        create(&gpu, profile, None, instance)
    }

    /// `nvmlGpuInstanceCreateComputeInstanceWithPlacement`
    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        gpu: GpuInstanceViewInTurn,
        profile: u32,
        placement: Out<nvmlComputeInstancePlacement_t>,
        instance: Out<Handle>,
    ) {
        let placement = placement.get()?;
        create(&gpu, profile, Some((placement.start, placement.size)), instance)
    }
}

nvml_functions! {
    /// `nvmlComputeInstanceGetInfo`
    fn nvmlComputeInstanceGetInfo(compute: MigView, place: Out<InfoV1>) {
        let card = compute.gpu.view.card.index;
        place.set(InfoV1 {
            device: Handle::to(Object::MigDevice(card, compute.instance.serial)),
            gpu_instance: Handle::to(Object::GpuInstance(card, compute.gpu.instance.serial)),
            id: compute.instance.id,
            profile: compute.instance.profile,
        })
    }

    /// `nvmlComputeInstanceGetInfo_v2`
    fn nvmlComputeInstanceGetInfo_v2(compute: MigView, place: Out<nvmlComputeInstanceInfo_t>) {
        place.set(info(&compute))
    }
}

nvml_functions! {
    /// `nvmlComputeInstanceDestroy`
    fn nvmlComputeInstanceDestroy(compute: MigViewInTurn) {
        let serial = compute.instance.serial;
        compute.gpu.view.partition(|_, card| {
            let processes = &card.processes;
            let used = |gpu: &GpuInstance, compute: &ComputeInstance| {
                processes.iter().any(|process| {
                    process.gpu_instance == Some(gpu.id) && process.compute_instance == Some(compute.id)
                })
            };
            compute::destroy(&mut card.mig, serial, used)
        })
    }
}
