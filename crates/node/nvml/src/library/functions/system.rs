use std::ffi::c_int;

use nvml_wrapper_sys::bindings as sys;

use super::{Functions, Handle, function};
use crate::error::NvmlError;
use tessera_api::PciBusId;

impl Functions {
    pub(in crate::library) fn init(&self) -> Result<(), NvmlError> {
        let function = function!(self, nvmlInit_v2);
        let init = function.get()?;
        // SAFETY: takes nothing; NVML counts the calls of a process.
        function.check(unsafe { init() })
    }

    pub(in crate::library) fn shutdown(&self) -> Result<(), NvmlError> {
        let function = function!(self, nvmlShutdown);
        let shutdown = function.get()?;
        // SAFETY: takes nothing; called once for each successful init, when nobody uses this session any more.
        function.check(unsafe { shutdown() })
    }

    pub(in crate::library) fn driver_version(&self) -> Result<String, NvmlError> {
        let function = function!(self, nvmlSystemGetDriverVersion);
        let get = function.get()?;
        function.text(|buffer, length| {
            // SAFETY: the function writes at most `length` bytes to a buffer of that many.
            unsafe { get(buffer, length) }
        })
    }

    /// 1000 × major + 10 × minor.
    pub(in crate::library) fn cuda_version(&self) -> Result<u32, NvmlError> {
        let function = function!(self, nvmlSystemGetCudaDriverVersion_v2);
        let get = function.get()?;
        let mut number: c_int = 0;
        // SAFETY: writes one int.
        function.check(unsafe { get(&raw mut number) })?;
        u32::try_from(number).map_err(|_| function.nonsense(number))
    }

    /// Whether confidential computing is on.
    pub(in crate::library) fn is_in_confidential_mode(&self) -> Result<bool, NvmlError> {
        let function = function!(self, nvmlSystemGetConfComputeState);
        let get = function.get()?;
        let mut state = sys::nvmlConfComputeSystemState_t { environment: 0, ccFeature: 0, devToolsMode: 0 };
        // SAFETY: writes one structure of three unsigned ints.
        function.check(unsafe { get(&raw mut state) })?;
        Ok(state.ccFeature == sys::NVML_CC_SYSTEM_FEATURE_ENABLED)
    }

    /// Whether cards in confidential computing mode accept the work of programs.
    pub(in crate::library) fn gpus_are_ready(&self) -> Result<bool, NvmlError> {
        let function = function!(self, nvmlSystemGetConfComputeGpusReadyState);
        let get = function.get()?;
        let mut accepts_work = 0;
        // SAFETY: writes one unsigned int.
        function.check(unsafe { get(&raw mut accepts_work) })?;
        Ok(accepts_work != sys::NVML_CC_ACCEPTING_CLIENT_REQUESTS_FALSE)
    }

    pub(in crate::library) fn count(&self) -> Result<u32, NvmlError> {
        /// Far more than any machine has; bounds loops in case of a wrong answer.
        const MOST: u32 = 1024;
        let function = function!(self, nvmlDeviceGetCount_v2);
        let get = function.get()?;
        let mut count = 0;
        // SAFETY: writes one unsigned int.
        function.check(unsafe { get(&raw mut count) })?;
        if count > MOST { Err(function.nonsense(count)) } else { Ok(count) }
    }

    pub(in crate::library) fn handle_by_index(&self, index: u32) -> Result<Handle, NvmlError> {
        let function = function!(self, nvmlDeviceGetHandleByIndex_v2);
        let get = function.get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        function.check(unsafe { get(index, &raw mut handle) })?;
        Ok(Handle(handle))
    }

    pub(in crate::library) fn handle_by_address(&self, address: PciBusId) -> Result<Handle, NvmlError> {
        let function = function!(self, nvmlDeviceGetHandleByPciBusId_v2);
        let get = function.get()?;
        // Eight digits of domain, as NVML itself writes it.
        let text = format!("{:08X}:{:02X}:{:02X}.0\0", address.domain(), address.bus(), address.device());
        let mut handle = std::ptr::null_mut();
        // SAFETY: reads a terminated text, writes one handle.
        function.check(unsafe { get(text.as_ptr().cast(), &raw mut handle) })?;
        Ok(Handle(handle))
    }
}
