//! Memory of a card or a MIG device.

use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_t, nvmlMemory_t, nvmlMemory_v2_t};

use super::call::nvml_functions;
use super::context::Device;
use super::ffi::{Out, check_version};
use crate::failure::Failure;

const MIB: u64 = 1 << 20;

/// Frame buffer of a card or a MIG device, bytes.
struct Memory {
    total: u64,
    reserved: u64,
    used: u64,
}

/// The compute instances of a GPU instance share its memory.
fn memory(device: &Device<'_>) -> Memory {
    let (total, reserved, of) = match device {
        Device::Card(view) => {
            let board = &view.card.board;
            (board.memory_total_mib, board.memory_reserved_mib.unwrap_or(0), None)
        }
        Device::Mig(view) => (view.gpu.profile.memory_mib.unwrap_or(0), 0, Some(view.gpu.instance.id)),
    };
    let (total, reserved) = (total * MIB, reserved * MIB);
    let processes = device.card().state.processes.iter();
    let used: u64 = processes
        .filter(|process| of.is_none() || process.gpu_instance == of)
        .map(|process| process.used_memory_bytes)
        .sum();
    Memory { total, reserved, used: used.min(total - reserved) }
}

/// `nvmlMemory_v2_t` with an explicit padding field, so callers find zeros there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryV2 {
    version: u32,
    padding: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

const _: () = assert!(size_of::<MemoryV2>() == size_of::<nvmlMemory_v2_t>());

nvml_functions! {
    /// `nvmlDeviceGetMemoryInfo`: memory reserved by the driver counts as used.
    fn nvmlDeviceGetMemoryInfo(device: Device, info: Out<nvmlMemory_t>) {
        let Memory { total, reserved, used } = memory(&device);
        info.set(nvmlMemory_t { total, free: total - reserved - used, used: reserved + used })
    }

    /// `nvmlDeviceGetMemoryInfo_v2`
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, info: Out<MemoryV2>) {
        let version = info.get()?.version;
        check_version::<MemoryV2>(version, 2)?;
        let Memory { total, reserved, used } = memory(&device);
        info.set(MemoryV2 { version, padding: 0, total, reserved, free: total - reserved - used, used })
    }
}

nvml_functions! {
    /// `nvmlDeviceGetBAR1MemoryInfo`
    fn nvmlDeviceGetBAR1MemoryInfo(view: CardView, info: Out<nvmlBAR1Memory_t>) {
        let total = view.card.board.bar1_total_mib.ok_or(Failure::NOT_SUPPORTED)? * MIB;
        info.set(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }
}
