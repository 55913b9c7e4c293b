use nvml_wrapper_sys::bindings::{self as sys, field_id, nvmlDevice_t, nvmlReturn_t};

use super::device::{empty_pci_info, pci_bus_id};
use super::{Function, Functions, Handle, function};
use crate::error::NvmlError;
use tessera_api::PciBusId;

type ReadLink<T> = unsafe extern "C" fn(nvmlDevice_t, u32, *mut T) -> nvmlReturn_t;

impl<T> Function<'_, ReadLink<T>> {
    /// Calls a getter of one value of one link.
    fn read_link(&self, card: Handle, link: u32, mut value: T) -> Result<T, NvmlError> {
        let function = self.get()?;
        // SAFETY: a getter of one value of a link writes at most one T, and `value` is one; see the parent's comment.
        let code = unsafe { function(card.0, link, &raw mut value) };
        self.check(code)?;
        Ok(value)
    }
}

impl Functions {
    pub(in crate::library) fn link_state(&self, card: Handle, link: u32) -> Result<bool, NvmlError> {
        function!(self, nvmlDeviceGetNvLinkState)
            .read_link(card, link, 0)
            .map(|state| state == sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    /// `nvmlNvlinkVersion_t`.
    pub(in crate::library) fn link_version(&self, card: Handle, link: u32) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetNvLinkVersion).read_link(card, link, 0)
    }

    /// `nvmlIntNvLinkDeviceType_t`.
    pub(in crate::library) fn link_remote_type(&self, card: Handle, link: u32) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetNvLinkRemoteDeviceType).read_link(card, link, 0)
    }

    /// `None` if the driver's answer is not an address.
    pub(in crate::library) fn link_remote_address(
        &self,
        card: Handle,
        link: u32,
    ) -> Result<Option<PciBusId>, NvmlError> {
        let info =
            function!(self, nvmlDeviceGetNvLinkRemotePciInfo_v2).read_link(card, link, empty_pci_info())?;
        Ok(pci_bus_id(&info))
    }

    /// Megabytes a second in one direction. Hopper replaced the fields for single links by one field for all.
    pub(in crate::library) fn link_speed(&self, card: Handle, link: u32) -> Result<u64, NvmlError> {
        let own = match link {
            0..=5 => Some(field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 + link),
            6..=11 => Some(field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 + link - 6),
            _ => None,
        };
        let mut answer = self.field(card, field_id::NVML_FI_DEV_NVLINK_GET_SPEED, link);
        for field in own.into_iter().chain([field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]) {
            match answer {
                Ok(speed) if speed > 0 => return Ok(speed),
                Ok(_) => {}
                Err(ref error) if error.is_unsupported() => {}
                Err(error) => return Err(error),
            }
            answer = self.field(card, field, 0);
        }
        answer
    }

    pub(super) fn field(&self, card: Handle, field: u32, scope: u32) -> Result<u64, NvmlError> {
        let function = function!(self, nvmlDeviceGetFieldValues);
        let get = function.get()?;
        let mut value = sys::nvmlFieldValue_t {
            fieldId: field,
            scopeId: scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: 0,
            value: sys::nvmlValue_t { ullVal: 0 },
        };
        // SAFETY: reads and writes as many records as it is told of: one.
        function.check(unsafe { get(card.0, 1, &raw mut value) })?;
        function.check(value.nvmlReturn)?;
        // SAFETY: every member is a plain number and all bytes of the union were set to zero above, so that each may be
        // read; which one the driver wrote is in `valueType`.
        let number = unsafe {
            match value.valueType {
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(u64::from(value.value.uiVal)),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => Some(value.value.ulVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.value.ullVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => {
                    u64::try_from(value.value.sllVal).ok()
                }
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => u64::try_from(value.value.siVal).ok(),
                _ => None,
            }
        };
        number.ok_or_else(|| function.nonsense(format!("field {field} of type {}", value.valueType)))
    }
}
