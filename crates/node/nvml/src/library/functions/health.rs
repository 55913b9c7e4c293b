use nvml_wrapper_sys::bindings::{self as sys, field_id};

use super::{Functions, Handle, function};
use crate::error::NvmlError;
use crate::health::{FabricHealth, RemappedRows};

impl Functions {
    pub(in crate::library) fn uncorrected_errors(&self, card: Handle) -> Result<u64, NvmlError> {
        let function = function!(self, nvmlDeviceGetTotalEccErrors);
        let get = function.get()?;
        let kind = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
        let counter = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        let mut count = 0;
        // SAFETY: takes two enumeration values, unsigned ints, and writes one unsigned long long.
        function.check(unsafe { get(card.0, kind, counter, &raw mut count) })?;
        Ok(count)
    }

    pub(in crate::library) fn remapped_rows(&self, card: Handle) -> Result<RemappedRows, NvmlError> {
        let function = function!(self, nvmlDeviceGetRemappedRows);
        let get = function.get()?;
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        // SAFETY: writes four unsigned ints.
        function.check(unsafe {
            get(card.0, &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
        })?;
        Ok(RemappedRows { pending: pending != 0, failed: failed != 0 })
    }

    pub(in crate::library) fn retired_pages_pending(&self, card: Handle) -> Result<bool, NvmlError> {
        function!(self, nvmlDeviceGetRetiredPagesPendingStatus)
            .read(card, 0)
            .map(|state| state == sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    pub(in crate::library) fn persistence_mode(&self, card: Handle) -> Result<bool, NvmlError> {
        function!(self, nvmlDeviceGetPersistenceMode)
            .read(card, 0)
            .map(|state| state == sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    /// `nvmlGpuRecoveryAction_t`.
    pub(in crate::library) fn recovery_action(&self, card: Handle) -> Result<u64, NvmlError> {
        self.field(card, field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
    }

    /// `None` on a card without a fabric, and for a driver without the fabric's health.
    pub(in crate::library) fn fabric_health(&self, card: Handle) -> Result<Option<FabricHealth>, NvmlError> {
        Ok(self.fabric_info(card)?.map(|info| FabricHealth(info.healthMask)))
    }
}
