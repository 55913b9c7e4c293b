use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{self as sys, field_id};

use super::{Functions, Handle, function};
use crate::clocks_event::ClocksEvents;
use crate::error::NvmlError;
use crate::telemetry::ProcessUtilization;

/// All links of a card, as the scope of a field (`nvml.h`, beside the field).
const ALL_LINKS: u32 = u32::MAX;

type ReadKind = unsafe extern "C" fn(sys::nvmlDevice_t, c_uint, *mut c_uint) -> sys::nvmlReturn_t;

impl super::Function<'_, ReadKind> {
    /// Calls a getter of one number of a kind.
    fn read_kind(&self, card: Handle, kind: c_uint) -> Result<u32, NvmlError> {
        let get = self.get()?;
        let mut value = 0;
        // SAFETY: takes an enumeration value, an unsigned int, and writes another.
        self.check(unsafe { get(card.0, kind, &raw mut value) })?;
        Ok(value)
    }
}

impl Functions {
    pub(in crate::library) fn power(&self, card: Handle) -> Result<u32, NvmlError> {
        function!(self, nvmlDeviceGetPowerUsage).read(card, 0)
    }

    pub(in crate::library) fn energy(&self, card: Handle) -> Result<u64, NvmlError> {
        function!(self, nvmlDeviceGetTotalEnergyConsumption).read(card, 0)
    }

    pub(in crate::library) fn temperature(&self, card: Handle) -> Result<u32, NvmlError> {
        let sensor = sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU;
        function!(self, nvmlDeviceGetTemperature).read_kind(card, sensor)
    }

    pub(in crate::library) fn memory_temperature(&self, card: Handle) -> Result<u64, NvmlError> {
        self.field(card, field_id::NVML_FI_DEV_MEMORY_TEMP, 0)
    }

    pub(in crate::library) fn sm_clock(&self, card: Handle) -> Result<u32, NvmlError> {
        let kind = sys::nvmlClockType_enum_NVML_CLOCK_SM;
        function!(self, nvmlDeviceGetClockInfo).read_kind(card, kind)
    }

    pub(in crate::library) fn memory_clock(&self, card: Handle) -> Result<u32, NvmlError> {
        let kind = sys::nvmlClockType_enum_NVML_CLOCK_MEM;
        function!(self, nvmlDeviceGetClockInfo).read_kind(card, kind)
    }

    /// By the older name for drivers without the new one (before R535).
    pub(in crate::library) fn clocks_events(&self, card: Handle) -> Result<ClocksEvents, NvmlError> {
        let answer = match function!(self, nvmlDeviceGetCurrentClocksEventReasons).read(card, 0) {
            Err(NvmlError::MissingFunction { .. }) => {
                function!(self, nvmlDeviceGetCurrentClocksThrottleReasons).read(card, 0)
            }
            answer => answer,
        };
        answer.map(ClocksEvents)
    }

    pub(in crate::library) fn pcie_sent(&self, card: Handle) -> Result<u32, NvmlError> {
        let kind = sys::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES;
        function!(self, nvmlDeviceGetPcieThroughput).read_kind(card, kind)
    }

    pub(in crate::library) fn pcie_received(&self, card: Handle) -> Result<u32, NvmlError> {
        let kind = sys::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES;
        function!(self, nvmlDeviceGetPcieThroughput).read_kind(card, kind)
    }

    pub(in crate::library) fn nvlink_sent(&self, card: Handle) -> Result<u64, NvmlError> {
        self.field(card, field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS)
    }

    pub(in crate::library) fn nvlink_received(&self, card: Handle) -> Result<u64, NvmlError> {
        self.field(card, field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS)
    }

    /// Samples newer than `since`, in microseconds of the driver's clock. Empty without measurements.
    pub(in crate::library) fn process_utilization(
        &self,
        card: Handle,
        since: u64,
    ) -> Result<Vec<ProcessUtilization>, NvmlError> {
        /// More than MPS and the driver's own sample buffer allow.
        const MOST: usize = 1024;
        let function = function!(self, nvmlDeviceGetProcessUtilization);
        let get = function.get()?;
        let empty = sys::nvmlProcessUtilizationSample_t {
            pid: 0,
            timeStamp: 0,
            smUtil: 0,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        let mut samples = vec![empty; MOST];
        let mut count = MOST as c_uint;
        // SAFETY: writes at most `count` records, and there is room for as many; then sets `count`.
        let code = unsafe { get(card.0, samples.as_mut_ptr(), &raw mut count, since) };
        if code == sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND {
            return Ok(Vec::new());
        }
        function.check(code)?;
        samples.truncate(count as usize);
        let measured = samples.iter().filter(|sample| sample.timeStamp > since && sample.smUtil <= 100);
        Ok(measured
            .map(|sample| ProcessUtilization {
                pid: sample.pid,
                at: sample.timeStamp,
                sm_percent: sample.smUtil,
            })
            .collect())
    }
}
