//! Activity of a card, now and so far: its gauges and counters, its processes, its partitions.

use crate::card::{Memory, Utilization};
use crate::clocks_event::ClocksEvents;
use crate::error::{NvmlError, Reading};
use crate::process::Process;

/// Readings of a card's activity: a failed query costs one figure and no other. `None` if the card or
/// the driver does not have the figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardTelemetry {
    /// Memory (`nvmlDeviceGetMemoryInfo_v2`).
    pub memory: Reading<Memory>,
    /// Utilization in the last sample period; not reported while MIG mode is on (`nvmlDeviceGetUtilizationRates`).
    pub utilization: Reading<Utilization>,
    /// Power draw, mW (`nvmlDeviceGetPowerUsage`).
    pub power_milliwatts: Reading<u32>,
    /// Energy since the driver was loaded, mJ (`nvmlDeviceGetTotalEnergyConsumption`).
    pub energy_millijoules: Reading<u64>,
    /// Temperature of the GPU, °C (`nvmlDeviceGetTemperature`).
    pub temperature_celsius: Reading<u32>,
    /// Temperature of the memory, °C (`NVML_FI_DEV_MEMORY_TEMP`).
    pub memory_temperature_celsius: Reading<u64>,
    /// Clock of the multiprocessors, MHz (`nvmlDeviceGetClockInfo`).
    pub sm_clock_megahertz: Reading<u32>,
    /// Clock of the memory, MHz (`nvmlDeviceGetClockInfo`).
    pub memory_clock_megahertz: Reading<u32>,
    /// Reasons for its reduced clocks (`nvmlDeviceGetCurrentClocksEventReasons`).
    pub clocks_events: Reading<ClocksEvents>,
    /// Sent over PCIe, KB/s, over 20 ms, the duration of the call (`nvmlDeviceGetPcieThroughput`).
    pub pcie_sent_kilobytes_per_second: Reading<u32>,
    /// Received over PCIe, KB/s, in the same way.
    pub pcie_received_kilobytes_per_second: Reading<u32>,
    /// Data sent over all NVLinks since the driver was loaded, KiB (`NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`).
    pub nvlink_sent_kibibytes: Reading<u64>,
    /// Data received over all NVLinks, KiB (`NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX`).
    pub nvlink_received_kibibytes: Reading<u64>,
    /// Processes on the card, as listed by [`Nvml::processes`](crate::Nvml::processes).
    pub processes: Reading<Vec<Process>>,
    /// Utilization by each process; not reported while MIG mode is on (`nvmlDeviceGetProcessUtilization`).
    pub process_utilization: Reading<Vec<ProcessUtilization>>,
    /// Its GPU instances with a MIG device, by id; `None` while MIG mode is off.
    pub partitions: Reading<Vec<PartitionTelemetry>>,
}

/// Share of the time since an earlier moment during which a process kept a card busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Process id, as [`Process::pid`].
    pub pid: u32,
    /// Time of the measurement, by the driver's clock, in microseconds: the starting point for newer samples.
    pub at: u64,
    /// Share of the time with a running kernel of the process, percent.
    pub sm_percent: u32,
}

/// A GPU instance, from the readings of its MIG device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTelemetry {
    /// Id of the GPU instance on its card.
    pub gpu_instance: u32,
    /// `MIG-…`, of its compute instance with the lowest id.
    pub uuid: Result<String, NvmlError>,
    /// Its profile, `1g.10gb`.
    pub profile: Reading<String>,
    /// Its memory.
    pub memory: Reading<Memory>,
}
