//! One look at a card. Blocks: for a hanging driver without end.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::PciBusId;
use tessera_nvml::{Activity, ClocksEvents, GpmSample, Memory, Nvml, NvmlError, Process, Reading};

use super::UsageMetrics;
use super::counter::Counter;

/// State of a card kept for the next look.
#[derive(Debug, Default)]
pub struct CardMemory {
    /// UUID of the card: another one in its place begins anew.
    uuid: Option<String>,
    processes_since: u64,
    /// The last samples: of the card, and of its partitions by GPU instance and UUID.
    samples: BTreeMap<Option<(u32, String)>, GpmSample>,
    energy: Counter,
    nvlink_sent: Counter,
    nvlink_received: Counter,
    /// Figures unreadable in the last look.
    failing: BTreeSet<&'static str>,
}

/// Activity of a card now and since the last look. Values unavailable from the driver are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub memory: Option<Memory>,
    /// 0 to 1: some kernel ran.
    pub utilization: Option<f64>,
    pub activity: Shares,
    pub power_watts: Option<f64>,
    pub energy_millijoules: Option<u64>,
    pub temperature_celsius: Option<f64>,
    pub memory_temperature_celsius: Option<f64>,
    pub sm_clock_megahertz: Option<u32>,
    pub memory_clock_megahertz: Option<u32>,
    pub clocks_events: Option<ClocksEvents>,
    pub pcie_sent_bytes_per_second: Option<u64>,
    pub pcie_received_bytes_per_second: Option<u64>,
    pub nvlink_sent_bytes: Option<u64>,
    pub nvlink_received_bytes: Option<u64>,
    pub processes: Option<Vec<ProcessLook>>,
    /// `None` outside MIG mode.
    pub partitions: Option<Vec<PartitionLook>>,
}

/// Shares of multiprocessors and of time, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    pub sm: Option<f64>,
    pub sm_occupancy: Option<f64>,
    pub tensor: Option<f64>,
    pub memory: Option<f64>,
}

/// A process on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessLook {
    pub pid: u32,
    pub memory_bytes: Option<u64>,
    pub gpu_instance: Option<u32>,
    pub compute_instance: Option<u32>,
    /// 0 to 1 of the card.
    pub sm: Option<f64>,
}

impl CardMemory {
    /// Drops the state of the driver library open so far.
    pub fn let_go(&mut self) {
        self.samples.clear();
    }
}

/// A GPU instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionLook {
    pub gpu_instance: u32,
    pub profile: Option<String>,
    pub memory: Option<Memory>,
    /// Shares of its own multiprocessors.
    pub activity: Shares,
}

/// Keeps readable values, and counts and logs failures.
struct Reader<'a> {
    card: PciBusId,
    metrics: &'a UsageMetrics,
    before: &'a BTreeSet<&'static str>,
    failing: BTreeSet<&'static str>,
}

impl Reader<'_> {
    fn keep<T>(&mut self, figure: &'static str, reading: Reading<T>) -> Option<T> {
        match reading {
            Ok(value) => value,
            Err(error) => {
                self.failed(figure, &error);
                None
            }
        }
    }

    fn failed(&mut self, figure: &'static str, error: &NvmlError) {
        self.metrics.failed(figure);
        if self.failing.insert(figure) && !self.before.contains(figure) {
            tracing::warn!(card = %self.card, figure, %error, "a figure of a card can't be read; it is left out");
        }
    }

    fn shares(&mut self, activity: Activity) -> Shares {
        Shares {
            sm: self.keep("sm_activity", activity.sm),
            sm_occupancy: self.keep("sm_occupancy", activity.sm_occupancy),
            tensor: self.keep("tensor_activity", activity.tensor),
            memory: self.keep("memory_activity", activity.memory),
        }
    }
}

/// Looks at the card with this UUID.
///
/// # Errors
/// When the card doesn't answer at all.
pub fn look(
    nvml: &dyn Nvml,
    card: PciBusId,
    uuid: Option<&str>,
    memory: &mut CardMemory,
    metrics: &UsageMetrics,
) -> Result<Look, NvmlError> {
    if memory.uuid.as_deref() != uuid {
        *memory = CardMemory { uuid: uuid.map(str::to_owned), ..CardMemory::default() };
    }
    let before = std::mem::take(&mut memory.failing);
    let mut reader = Reader { card, metrics, before: &before, failing: BTreeSet::new() };
    let told = nvml.telemetry(card, memory.processes_since).inspect_err(|error| reader.failed("card", error));
    let told = match told {
        Ok(told) => told,
        Err(error) => {
            memory.failing = reader.failing;
            return Err(error);
        }
    };
    let utilization = reader.keep("utilization", told.utilization);
    let processes = reader.keep("processes", told.processes);
    let of_processes = reader.keep("process_utilization", told.process_utilization);
    let busy = of_processes.map(|told| {
        let mut busy = BTreeMap::<u32, f64>::new();
        for sample in told {
            memory.processes_since = memory.processes_since.max(sample.at);
            *busy.entry(sample.pid).or_default() = f64::from(sample.sm_percent) / 100.0;
        }
        busy
    });
    let mut samples = BTreeMap::new();
    let partitions = reader.keep("partitions", told.partitions).map(|told| {
        let partitions = told.into_iter().map(|partition| {
            let uuid = reader.keep("partition_uuid", partition.uuid.map(Some)).unwrap_or_default();
            let key = (partition.gpu_instance, uuid);
            PartitionLook {
                gpu_instance: partition.gpu_instance,
                profile: reader.keep("partition_profile", partition.profile),
                memory: reader.keep("partition_memory", partition.memory),
                activity: activity(nvml, card, Some(key), &memory.samples, &mut samples, &mut reader),
            }
        });
        partitions.collect()
    });
    let activity = activity(nvml, card, None, &memory.samples, &mut samples, &mut reader);
    // Frees the samples of removed partitions.
    memory.samples = samples;
    let percent = |percent: u32| f64::from(percent.min(100)) / 100.0;
    let look = Look {
        memory: reader.keep("memory", told.memory),
        utilization: utilization.map(|told| percent(told.gpu)),
        activity,
        power_watts: reader
            .keep("power", told.power_milliwatts)
            .map(|milliwatts| f64::from(milliwatts) / 1000.0),
        energy_millijoules: reader.keep("energy", told.energy_millijoules).map(|now| memory.energy.read(now)),
        temperature_celsius: reader.keep("temperature", told.temperature_celsius).map(f64::from),
        memory_temperature_celsius: reader
            .keep("memory_temperature", told.memory_temperature_celsius)
            .and_then(|celsius| u32::try_from(celsius).ok())
            .map(f64::from),
        sm_clock_megahertz: reader.keep("sm_clock", told.sm_clock_megahertz),
        memory_clock_megahertz: reader.keep("memory_clock", told.memory_clock_megahertz),
        clocks_events: reader.keep("clocks_events", told.clocks_events),
        pcie_sent_bytes_per_second: reader
            .keep("pcie_sent", told.pcie_sent_kilobytes_per_second)
            .map(|kilobytes| u64::from(kilobytes) * 1000),
        pcie_received_bytes_per_second: reader
            .keep("pcie_received", told.pcie_received_kilobytes_per_second)
            .map(|kilobytes| u64::from(kilobytes) * 1000),
        nvlink_sent_bytes: reader
            .keep("nvlink_sent", told.nvlink_sent_kibibytes)
            .map(|kibibytes| memory.nvlink_sent.read(kibibytes.saturating_mul(1024))),
        nvlink_received_bytes: reader
            .keep("nvlink_received", told.nvlink_received_kibibytes)
            .map(|kibibytes| memory.nvlink_received.read(kibibytes.saturating_mul(1024))),
        processes: processes.map(|processes| process_looks(&processes, busy.as_ref())),
        partitions,
    };
    memory.failing = reader.failing;
    Ok(look)
}

/// Activity since the last sample; the present sample is added to `samples`.
fn activity(
    nvml: &dyn Nvml,
    card: PciBusId,
    partition: Option<(u32, String)>,
    earlier: &BTreeMap<Option<(u32, String)>, GpmSample>,
    samples: &mut BTreeMap<Option<(u32, String)>, GpmSample>,
    reader: &mut Reader<'_>,
) -> Shares {
    let gpu_instance = partition.as_ref().map(|(id, _)| *id);
    let Some(sample) = reader.keep("activity", nvml.gpm_sample(card, gpu_instance)) else {
        return Shares::default();
    };
    let shares = earlier.get(&partition).and_then(|earlier| {
        let activity = reader.keep("activity", sample.activity_since(earlier).map(Some))?;
        Some(reader.shares(activity))
    });
    samples.insert(partition, sample);
    shares.unwrap_or_default()
}

/// A process using the card in several ways counts once. Without a measured utilization a process had none.
fn process_looks(processes: &[Process], busy: Option<&BTreeMap<u32, f64>>) -> Vec<ProcessLook> {
    let mut looks = BTreeMap::<_, ProcessLook>::new();
    for (position, process) in processes.iter().enumerate() {
        // Processes without an id from the driver count separately.
        let unknown = (process.pid == 0).then_some(position);
        let key = (process.pid, process.gpu_instance, process.compute_instance, unknown);
        let look = looks.entry(key).or_insert_with(|| ProcessLook {
            pid: process.pid,
            memory_bytes: None,
            gpu_instance: process.gpu_instance,
            compute_instance: process.compute_instance,
            sm: busy.map(|busy| busy.get(&process.pid).copied().unwrap_or(0.0)),
        });
        look.memory_bytes = look.memory_bytes.max(process.used_memory);
    }
    looks.into_values().collect()
}

#[cfg(test)]
mod tests;
