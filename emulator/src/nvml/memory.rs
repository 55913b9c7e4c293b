//! Memory of a card.

use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_t, nvmlMemory_t, nvmlMemory_v2_t};

use super::call::{CardView, Failure, nvml_functions};
use super::ffi::{Out, check_version};

const MIB: u64 = 1 << 20;

/// Frame buffer of a card, bytes.
struct Memory {
    total: u64,
    reserved: u64,
    used: u64,
}

fn memory(view: &CardView<'_>) -> Memory {
    let total = view.card.board.memory_total_mib * MIB;
    let reserved = view.card.board.memory_reserved_mib.unwrap_or(0) * MIB;
    let used: u64 = view.state.processes.iter().map(|process| process.used_memory_bytes).sum();
    Memory { total, reserved, used: used.min(total - reserved) }
}

/// `nvmlMemory_v2_t`, with a name for its padding, so that callers find zeros there.
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
    /// `nvmlDeviceGetMemoryInfo`: what the driver reserved counts as used.
    fn nvmlDeviceGetMemoryInfo(view: CardView, info: Out<nvmlMemory_t>) {
        let Memory { total, reserved, used } = memory(&view);
        info.set(nvmlMemory_t { total, free: total - reserved - used, used: reserved + used })
    }

    /// `nvmlDeviceGetMemoryInfo_v2`
    fn nvmlDeviceGetMemoryInfo_v2(view: CardView, info: Out<MemoryV2>) {
        let version = info.get()?.version;
        check_version::<MemoryV2>(version, 2)?;
        let Memory { total, reserved, used } = memory(&view);
        info.set(MemoryV2 { version, padding: 0, total, reserved, free: total - reserved - used, used })
    }

    /// `nvmlDeviceGetBAR1MemoryInfo`
    fn nvmlDeviceGetBAR1MemoryInfo(view: CardView, info: Out<nvmlBAR1Memory_t>) {
        let total = view.card.board.bar1_total_mib.ok_or(Failure::NOT_SUPPORTED)? * MIB;
        info.set(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }
}
