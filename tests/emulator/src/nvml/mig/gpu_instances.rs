//! GPU instances of a card.

use nvml_wrapper_sys::bindings::{nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t};

use super::super::call::nvml_functions;
use super::super::context::CardView;
use super::super::ffi::Out;
use super::super::handle::{Handle, Object};
use crate::failure::Failure;
use crate::mig::gpu;
use crate::state::mig::GpuInstance;

fn handle(view: &CardView<'_>, instance: &GpuInstance) -> Handle {
    Handle::to(Object::GpuInstance(view.card.index, instance.serial))
}

/// An error unless the mode is on.
fn enabled(view: &CardView<'_>) -> Result<(), Failure> {
    view.model()?;
    if view.state.mig.enabled { Ok(()) } else { Err(Failure::NOT_SUPPORTED) }
}

fn create(
    view: &CardView<'_>,
    profile: u32,
    placement: Option<(u32, u32)>,
    instance: Out<Handle>,
) -> Result<(), Failure> {
    if instance.is_null() {
        return Err(Failure::INVALID_ARGUMENT);
    }
    let swapped = view.card.gpu_instance_ids_swapped();
    let serial =
        view.partition(|model, card| gpu::create(model, &mut card.mig, profile, placement, swapped))?;
    instance.set(Handle::to(Object::GpuInstance(view.card.index, serial)))
}

nvml_functions! {
    /// `nvmlDeviceCreateGpuInstance`
    fn nvmlDeviceCreateGpuInstance(view: CardViewInTurn, profile: u32, instance: Out<Handle>) {
        create(&view, profile, None, instance)
    }

    /// `nvmlDeviceCreateGpuInstanceWithPlacement`
    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        view: CardViewInTurn,
        profile: u32,
        placement: Out<nvmlGpuInstancePlacement_t>,
        instance: Out<Handle>,
    ) {
        let placement = placement.get()?;
        create(&view, profile, Some((placement.start, placement.size)), instance)
    }
}

nvml_functions! {
    /// `nvmlDeviceGetGpuInstances`: `count` is only written (nvml.h): the caller's buffer must have room for as many
    /// as the profile allows.
    fn nvmlDeviceGetGpuInstances(view: CardView, profile: u32, instances: Out<Handle>, count: Out<u32>) {
        enabled(&view)?;
        view.model()?.profile(profile).ok_or(Failure::INVALID_ARGUMENT)?;
        let found: Vec<Handle> = view
            .state
            .mig
            .instances
            .iter()
            .filter(|instance| instance.profile == profile)
            .map(|instance| handle(&view, instance))
            .collect();
        super::give(&found, instances, count)
    }

    /// `nvmlDeviceGetGpuInstanceById`
    fn nvmlDeviceGetGpuInstanceById(view: CardView, id: u32, instance: Out<Handle>) {
        enabled(&view)?;
        let found = view.state.mig.instances.iter().find(|instance| instance.id == id);
        instance.set(handle(&view, found.ok_or(Failure::NOT_FOUND)?))
    }
}

nvml_functions! {
    /// `nvmlGpuInstanceGetInfo`
    fn nvmlGpuInstanceGetInfo(gpu: GpuInstanceView, info: Out<nvmlGpuInstanceInfo_t>) {
        info.set(nvmlGpuInstanceInfo_t {
            device: Handle::of(gpu.view.card.index).raw().cast(),
            id: gpu.instance.id,
            profileId: gpu.instance.profile,
            placement: nvmlGpuInstancePlacement_t { start: gpu.instance.start, size: gpu.instance.size },
        })
    }
}

nvml_functions! {
    /// `nvmlGpuInstanceDestroy`
    fn nvmlGpuInstanceDestroy(gpu: GpuInstanceViewInTurn) {
        let serial = gpu.instance.serial;
        gpu.view.partition(|_, card| {
            let processes = &card.processes;
            let used = |instance: &GpuInstance| {
                processes.iter().any(|process| process.gpu_instance == Some(instance.id))
            };
            gpu::destroy(&mut card.mig, serial, used)
        })
    }
}
