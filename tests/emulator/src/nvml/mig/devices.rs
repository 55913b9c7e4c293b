//! MIG devices: compute instances as devices.

use nvml_wrapper_sys::bindings::nvmlDeviceAttributes_t;

use super::super::call::nvml_functions;
use super::super::context::Device;
use super::super::ffi::Out;
use super::super::handle::{Handle, Object};
use crate::failure::Failure;
use crate::mig::compute;

nvml_functions! {
    /// `nvmlDeviceGetMaxMigDeviceCount`: zero where MIG is not supported or not on.
    fn nvmlDeviceGetMaxMigDeviceCount(view: CardView, count: Out<u32>) {
        let on = view.state.mig.enabled;
        count.set(view.card.mig.as_ref().filter(|_| on).map_or(0, |model| model.compute_slices))
    }

    /// `nvmlDeviceGetMigDeviceHandleByIndex`: indexes count the existing MIG devices by id, so they shift when one is
    /// destroyed.
    fn nvmlDeviceGetMigDeviceHandleByIndex(view: CardView, index: u32, device: Out<Handle>) {
        let slices = view.model()?.compute_slices;
        if device.is_null() || (view.state.mig.enabled && index >= slices) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let (_, compute) = view.state.mig.devices().nth(index as usize).ok_or(Failure::NOT_FOUND)?;
        device.set(Handle::to(Object::MigDevice(view.card.index, compute.serial)))
    }
}

nvml_functions! {
    /// `nvmlDeviceIsMigDeviceHandle`
    fn nvmlDeviceIsMigDeviceHandle(device: Device, is_mig: Out<u32>) {
        is_mig.set(matches!(device, Device::Mig(_)).into())
    }

    /// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: Device, card: Out<Handle>) {
        match device {
            Device::Card(_) => Err(Failure::INVALID_ARGUMENT),
            Device::Mig(view) => card.set(Handle::of(view.gpu.view.card.index)),
        }
    }

    /// `nvmlDeviceGetGpuInstanceId`
    fn nvmlDeviceGetGpuInstanceId(device: Device, id: Out<u32>) {
        match device {
            Device::Card(_) => Err(Failure::NOT_SUPPORTED),
            Device::Mig(view) => id.set(view.gpu.instance.id),
        }
    }

    /// `nvmlDeviceGetComputeInstanceId`
    fn nvmlDeviceGetComputeInstanceId(device: Device, id: Out<u32>) {
        match device {
            Device::Card(_) => Err(Failure::NOT_SUPPORTED),
            Device::Mig(view) => id.set(view.instance.id),
        }
    }

    /// `nvmlDeviceGetAttributes_v2`
    fn nvmlDeviceGetAttributes_v2(device: Device, attributes: Out<nvmlDeviceAttributes_t>) {
        let Device::Mig(view) = device else { return Err(Failure::NOT_SUPPORTED) };
        let profile = view.gpu.profile;
        let offered = compute::profiles(view.gpu.model, profile);
        let of_compute = offered.iter().find(|offered| offered.id == view.instance.profile);
        attributes.set(nvmlDeviceAttributes_t {
            multiprocessorCount: of_compute.and_then(|offered| offered.multiprocessors).unwrap_or(0),
            sharedCopyEngineCount: profile.copy_engines.unwrap_or(0),
            sharedDecoderCount: profile.decoders.unwrap_or(0),
            sharedEncoderCount: profile.encoders.unwrap_or(0),
            sharedJpegCount: profile.jpeg_engines.unwrap_or(0),
            sharedOfaCount: profile.ofa_engines.unwrap_or(0),
            gpuInstanceSliceCount: profile.compute_slices,
            computeInstanceSliceCount: view.instance.size,
            memorySizeMB: profile.memory_mib.unwrap_or(0),
        })
    }
}
