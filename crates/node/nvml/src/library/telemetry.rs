use nvml_wrapper_sys::bindings as sys;

use super::functions::{Functions, Handle};
use super::mig::is_stale;
use crate::error::{NvmlError, Reading};
use crate::telemetry::{CardTelemetry, PartitionTelemetry};

/// Reads one card, each figure on its own.
pub(super) fn read(functions: &Functions, card: Handle, processes_since: u64) -> CardTelemetry {
    CardTelemetry {
        memory: NvmlError::reading(functions.memory(card)),
        utilization: NvmlError::reading(functions.utilization(card)),
        power_milliwatts: NvmlError::reading(functions.power(card)),
        energy_millijoules: NvmlError::reading(functions.energy(card)),
        temperature_celsius: NvmlError::reading(functions.temperature(card)),
        memory_temperature_celsius: field(functions.memory_temperature(card)),
        sm_clock_megahertz: NvmlError::reading(functions.sm_clock(card)),
        memory_clock_megahertz: NvmlError::reading(functions.memory_clock(card)),
        clocks_events: NvmlError::reading(functions.clocks_events(card)),
        pcie_sent_kilobytes_per_second: NvmlError::reading(functions.pcie_sent(card)),
        pcie_received_kilobytes_per_second: NvmlError::reading(functions.pcie_received(card)),
        nvlink_sent_kibibytes: field(functions.nvlink_sent(card)),
        nvlink_received_kibibytes: field(functions.nvlink_received(card)),
        processes: super::processes(functions, card),
        process_utilization: NvmlError::reading(functions.process_utilization(card, processes_since)),
        partitions: partitions(functions, card),
    }
}

/// Drivers also report a field unknown to them or missing from the card by this error.
pub(super) fn field(answer: Result<u64, NvmlError>) -> Reading<u64> {
    let invalid = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    match answer {
        Err(NvmlError::Call { code, .. }) if code == invalid => Ok(None),
        answer => NvmlError::reading(answer),
    }
}

fn partitions(functions: &Functions, card: Handle) -> Reading<Vec<PartitionTelemetry>> {
    if !NvmlError::reading(functions.mig_mode(card))?.is_some_and(|mode| mode.current) {
        return Ok(None);
    }
    let mut devices = Vec::new();
    for index in 0..functions.max_mig_devices(card)? {
        let Some(device) = functions.mig_device(card, index)? else { continue };
        match functions.instance_ids(device) {
            Ok(ids) => devices.push((ids, device)),
            // Destroyed meanwhile.
            Err(error) if is_stale(&error) => {}
            Err(error) => return Err(error),
        }
    }
    devices.sort_by_key(|(ids, _)| *ids);
    devices.dedup_by_key(|((gpu_instance, _), _)| *gpu_instance);
    let partition = |((gpu_instance, _), device): &((u32, u32), Handle)| PartitionTelemetry {
        gpu_instance: *gpu_instance,
        uuid: functions.uuid(*device),
        profile: NvmlError::reading(functions.name(*device)).map(|name| name.and_then(|name| profile(&name))),
        memory: NvmlError::reading(functions.memory(*device)),
    };
    Ok(Some(devices.iter().map(partition).collect()))
}

/// The GPU instance's profile in the name of a MIG device: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`, or `… MIG 1c.2g.20gb` for a
/// compute instance with only a part.
fn profile(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    let of_compute =
        |slices: &str| slices.strip_suffix('c').is_some_and(|digits| digits.parse::<u32>().is_ok());
    let profile = match profile.trim().split_once('.') {
        Some((slices, rest)) if of_compute(slices) => rest,
        _ => profile.trim(),
    };
    (!profile.is_empty()).then(|| profile.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_end_of_the_name() {
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me").as_deref(), Some("1g.10gb+me"));
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb").as_deref(), Some("2g.20gb"));
        assert_eq!(profile("NVIDIA H100 80GB HBM3"), None);
        assert_eq!(profile("MIG "), None);
    }
}
