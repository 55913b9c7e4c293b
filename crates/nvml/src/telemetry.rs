//! What a card does now, and has done so far: its gauges and counters, its processes, its partitions.

use crate::card::{Memory, Utilization};
use crate::clocks_event::ClocksEvents;
use crate::error::{NvmlError, Reading};
use crate::process::Process;

/// What a card does, each figure on its own: a query that fails costs that figure and no other. `None` where the card or
/// the driver does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardTelemetry {
    /// Memory (`nvmlDeviceGetMemoryInfo_v2`).
    pub memory: Reading<Memory>,
    /// How busy it was in the last sample period; not told while MIG mode is on (`nvmlDeviceGetUtilizationRates`).
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
    /// What keeps its clocks down (`nvmlDeviceGetCurrentClocksEventReasons`).
    pub clocks_events: Reading<ClocksEvents>,
    /// Sent over PCIe, KB/s, over 20 ms, for which the call waits (`nvmlDeviceGetPcieThroughput`).
    pub pcie_sent_kilobytes_per_second: Reading<u32>,
    /// Received over PCIe, KB/s, in the same way.
    pub pcie_received_kilobytes_per_second: Reading<u32>,
    /// Data sent over all NVLinks since the driver was loaded, KiB (`NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`).
    pub nvlink_sent_kibibytes: Reading<u64>,
    /// Data received over all NVLinks, KiB (`NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX`).
    pub nvlink_received_kibibytes: Reading<u64>,
    /// Processes on it, as [`Nvml::processes`](crate::Nvml::processes) lists them.
    pub processes: Reading<Vec<Process>>,
    /// How busy each process kept it; not told while MIG mode is on (`nvmlDeviceGetProcessUtilization`).
    pub process_utilization: Reading<Vec<ProcessUtilization>>,
    /// Its GPU instances with a MIG device, by id; `None` while MIG mode is off.
    pub partitions: Reading<Vec<PartitionTelemetry>>,
}

/// How much of the time since an earlier moment a process kept a card busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Process id, as [`Process::pid`].
    pub pid: u32,
    /// When it was measured, by the driver's clock, in microseconds: asks for what is newer.
    pub at: u64,
    /// Share of the time in which a kernel of it ran, percent.
    pub sm_percent: u32,
}

/// A GPU instance as its MIG device tells of it.
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
