//! Memory and modes of a card.

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

nvml_functions! {
    /// `nvmlDeviceGetMemoryInfo`: what the driver reserved counts as used.
    fn nvmlDeviceGetMemoryInfo(view: CardView, info: Out<nvmlMemory_t>) {
        let Memory { total, reserved, used } = memory(&view);
        info.set(nvmlMemory_t { total, free: total - reserved - used, used: reserved + used })
    }

    /// `nvmlDeviceGetMemoryInfo_v2`
    fn nvmlDeviceGetMemoryInfo_v2(view: CardView, info: Out<nvmlMemory_v2_t>) {
        let version = info.get()?.version;
        check_version::<nvmlMemory_v2_t>(version, 2)?;
        let Memory { total, reserved, used } = memory(&view);
        info.set(nvmlMemory_v2_t { version, total, reserved, free: total - reserved - used, used })
    }

    /// `nvmlDeviceGetBAR1MemoryInfo`
    fn nvmlDeviceGetBAR1MemoryInfo(view: CardView, info: Out<nvmlBAR1Memory_t>) {
        let total = view.card.board.bar1_total_mib.ok_or(Failure::NOT_SUPPORTED)? * MIB;
        info.set(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }

    /// `nvmlDeviceGetMigMode`
    fn nvmlDeviceGetMigMode(view: CardView, current: Out<u32>, pending: Out<u32>) {
        if !view.card.board.mig_capable {
            return Err(Failure::NOT_SUPPORTED);
        }
        if pending.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        current.set(view.state.mig_mode.into())?;
        pending.set(view.state.mig_mode.into())
    }

    /// `nvmlDeviceIsMigDeviceHandle`
    fn nvmlDeviceIsMigDeviceHandle(_view: CardView, is_mig: Out<u32>) {
        is_mig.set(0)
    }
}
