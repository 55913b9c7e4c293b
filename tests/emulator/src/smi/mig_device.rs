//! Facts of each MIG device.

use nvml_wrapper_sys::bindings::nvmlDeviceAttributes_t;

use super::library::{Device, Library};
use super::memory::Memory;

/// A MIG device.
pub(super) struct MigDevice {
    pub index: u32,
    pub uuid: Result<String, u32>,
    pub name: Result<String, u32>,
    pub gpu_instance: Result<u32, u32>,
    pub compute_instance: Result<u32, u32>,
    pub memory: Result<Memory, u32>,
    pub attributes: Result<nvmlDeviceAttributes_t, u32>,
}

/// The MIG devices of a card.
pub(super) fn devices(library: &Library, card: Device) -> Vec<MigDevice> {
    let most: u32 = library.value("nvmlDeviceGetMaxMigDeviceCount", card).unwrap_or(0);
    let handles = (0..most).filter_map(|index| {
        let mut device: Device = std::ptr::null_mut();
        let found = library.fill_of("nvmlDeviceGetMigDeviceHandleByIndex", card, index, &mut device);
        found.ok().map(|()| (index, device))
    });
    handles
        .map(|(index, device)| {
            let mut memory = Memory::versioned();
            let memory = library.fill("nvmlDeviceGetMemoryInfo_v2", device, &mut memory).map(|()| memory);
            // SAFETY: integers, so zeros are valid.
            let mut attributes: nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
            let attributes =
                library.fill("nvmlDeviceGetAttributes_v2", device, &mut attributes).map(|()| attributes);
            MigDevice {
                index,
                uuid: library.text("nvmlDeviceGetUUID", device),
                name: library.text("nvmlDeviceGetName", device),
                gpu_instance: library.value("nvmlDeviceGetGpuInstanceId", device),
                compute_instance: library.value("nvmlDeviceGetComputeInstanceId", device),
                memory,
                attributes,
            }
        })
        .collect()
}

impl MigDevice {
    /// The part of its name after its card's name.
    pub fn profile(&self) -> String {
        let name = self.name.as_deref().unwrap_or("Unknown Error");
        name.rsplit_once(" MIG ").map_or(name, |(_, profile)| profile).to_owned()
    }
}
