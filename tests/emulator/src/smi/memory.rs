//! Memory, as reported by the library.

use crate::nvml::ffi::struct_version;

/// `nvmlMemory_v2_t`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

impl Memory {
    /// An empty one with its version, as the library expects.
    pub fn versioned() -> Self {
        Memory { version: struct_version::<Memory>(2), ..Memory::default() }
    }
}
