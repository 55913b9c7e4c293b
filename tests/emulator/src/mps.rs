//! MPS (Multi-Process Service): code shared by NVIDIA's control daemon, its servers and their clients.
//!
//! The programs are in [`mps_programs`](crate::mps_programs), the client in [`cuda`](crate::cuda). Directories, limits and
//! texts visible to users are those of the real programs. The protocol between daemon, server and clients is not published
//! by NVIDIA and made up here, so only stubs can talk to stubs.

use std::ffi::CStr;

pub mod limits;
pub mod partitions;
pub mod place;
pub mod wire;

/// `CUDA_ERROR_OUT_OF_MEMORY`
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_DEVICE_UNAVAILABLE`
pub const DEVICE_UNAVAILABLE: u32 = 46;
/// `CUDA_ERROR_NO_DEVICE`
pub const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_INVALID_DEVICE`
pub const INVALID_DEVICE: u32 = 101;
/// `CUDA_ERROR_LAUNCH_FAILED`
pub const LAUNCH_FAILED: u32 = 719;
/// `CUDA_ERROR_MPS_CONNECTION_FAILED`
pub const MPS_CONNECTION_FAILED: u32 = 805;
/// `CUDA_ERROR_MPS_RPC_FAILURE`
pub const MPS_RPC_FAILURE: u32 = 806;
/// `CUDA_ERROR_MPS_SERVER_NOT_READY`
pub const MPS_SERVER_NOT_READY: u32 = 807;
/// `CUDA_ERROR_MPS_MAX_CLIENTS_REACHED`
pub const MPS_MAX_CLIENTS_REACHED: u32 = 808;
/// `CUDA_ERROR_MPS_CLIENT_TERMINATED`
pub const MPS_CLIENT_TERMINATED: u32 = 810;

/// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`
pub const INVALID_RESOURCE_CONFIGURATION: u32 = 914;

/// Name of a code in `cuda.h`.
pub fn error_name(code: u32) -> &'static str {
    error_text(code).to_str().unwrap_or_default()
}

/// The text, as CUDA returns it.
pub fn error_text(code: u32) -> &'static CStr {
    match code {
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        DEVICE_UNAVAILABLE => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        MPS_CONNECTION_FAILED => c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        MPS_RPC_FAILURE => c"CUDA_ERROR_MPS_RPC_FAILURE",
        MPS_SERVER_NOT_READY => c"CUDA_ERROR_MPS_SERVER_NOT_READY",
        MPS_MAX_CLIENTS_REACHED => c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        MPS_CLIENT_TERMINATED => c"CUDA_ERROR_MPS_CLIENT_TERMINATED",
        INVALID_RESOURCE_CONFIGURATION => c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}
