//! The part of `libcuda.so.1` called by `cargo xtask gpu-check --mps`, so that the check itself can be tested: contexts and
//! memory as in `cuda-sample`. The machine is named by [`machine::VARIABLE`](super::machine::VARIABLE). One device,
//! one context.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::program::{Connected, Ended, connect};
use crate::mps::NO_DEVICE;

/// `CUDA_ERROR_INVALID_VALUE`
const INVALID_VALUE: c_uint = 1;
/// `CUDA_ERROR_INVALID_CONTEXT`
const INVALID_CONTEXT: c_uint = 201;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
const MULTIPROCESSOR_COUNT: c_int = 16;
/// The handle of a context: any value but null.
const CONTEXT: usize = 1;

#[derive(Default)]
struct Process {
    connected: Option<Connected>,
    allocations: BTreeMap<u64, u64>,
    next: u64,
}

static PROCESS: Mutex<Process> =
    Mutex::new(Process { connected: None, allocations: BTreeMap::new(), next: 1 << 32 });

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call and returns CUDA's number of its result.
fn answer(call: impl FnOnce(&mut Process) -> Result<(), c_uint>) -> c_uint {
    call(&mut process()).err().unwrap_or(0)
}

fn code(ended: &Ended) -> c_uint {
    match ended {
        Ended::Cuda(code) => *code,
        Ended::Other(text) => {
            eprintln!("libcuda of an emulated machine: {text}");
            NO_DEVICE
        }
    }
}

/// # Safety
/// `out` is null or as required by cuda.h.
unsafe fn set<T>(out: *mut T, value: T) -> Result<(), c_uint> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and by the caller's promise room for one value.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

impl Process {
    fn connected(&mut self) -> Result<&mut Connected, c_uint> {
        self.connected.as_mut().ok_or(INVALID_CONTEXT)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, c_uint> {
        self.connected()?.context.allocate(bytes).map_err(|ended| code(&ended))?;
        let address = self.next;
        self.next += bytes.next_multiple_of(512).max(512);
        self.allocations.insert(address, bytes);
        Ok(address)
    }

    /// Contexts of the emulator free everything or nothing.
    fn free(&mut self, address: u64) -> Result<(), c_uint> {
        self.allocations.remove(&address).ok_or(INVALID_VALUE)?;
        let rest = self.allocations.values().sum();
        let context = &mut self.connected()?.context;
        context.free().and_then(|_| context.allocate(rest)).map(drop).map_err(|ended| code(&ended))
    }
}

/// `cuInit`
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_uint {
    if flags == 0 { 0 } else { INVALID_VALUE }
}

/// `cuDeviceGet`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> c_uint {
    // SAFETY: by the caller's promise.
    answer(|_| if number == 0 { unsafe { set(device, 0) } } else { Err(NO_DEVICE) })
}

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) -> c_uint {
    answer(|process| {
        if process.connected.is_none() {
            process.connected = Some(connect(0).map_err(|ended| code(&ended))?);
        }
        // SAFETY: by the caller's promise.
        unsafe { set(context, std::ptr::without_provenance_mut(CONTEXT)) }
    })
}

/// `cuDevicePrimaryCtxRelease_v2`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_uint {
    answer(|process| {
        process.allocations.clear();
        process.connected.take().map(drop).ok_or(INVALID_CONTEXT)
    })
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_uint {
    if context.addr() == CONTEXT { 0 } else { INVALID_CONTEXT }
}

/// `cuDeviceGetUuid_v2`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) -> c_uint {
    answer(|process| {
        let text = &process.connected()?.device.uuid;
        let hex: Vec<u8> = text.bytes().skip("GPU-".len()).filter(u8::is_ascii_hexdigit).collect();
        let mut bytes = [0; 16];
        for (byte, digits) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NO_DEVICE)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NO_DEVICE)?;
        }
        // SAFETY: by the caller's promise.
        unsafe { set(uuid, bytes) }
    })
}

/// `cuDeviceGetAttribute`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> c_uint {
    answer(|process| {
        if attribute != MULTIPROCESSOR_COUNT {
            return Err(INVALID_VALUE);
        }
        let count = process.connected()?.multiprocessors().unwrap_or(0);
        // SAFETY: by the caller's promise.
        unsafe { set(value, c_int::try_from(count).unwrap_or(0)) }
    })
}

/// `cuMemGetInfo_v2`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    answer(|process| {
        let held: u64 = process.allocations.values().sum();
        let connected = process.connected()?;
        let all = connected.memory_limit().unwrap_or(connected.device.memory);
        // SAFETY: by the caller's promise.
        unsafe { set(free, all.saturating_sub(held) as usize) }?;
        // SAFETY: by the caller's promise.
        unsafe { set(total, all as usize) }
    })
}

/// `cuMemAlloc_v2`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    answer(|process| {
        if bytes == 0 || address.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = process.allocate(bytes as u64)?;
        // SAFETY: by the caller's promise.
        unsafe { set(address, made) }
    })
}

/// `cuMemFree_v2`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_uint {
    answer(|process| process.free(address))
}

/// `cuGetErrorName`
///
/// # Safety
/// As required by cuda.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    let text: &'static CStr = match code {
        0 => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        code => crate::mps::error_text(code),
    };
    // SAFETY: by the caller's promise.
    unsafe { set(name, text.as_ptr()) }.err().unwrap_or(0)
}
