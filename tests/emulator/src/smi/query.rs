//! `nvidia-smi --query-gpu=…`

use super::card::{Reading, mib, mode};
use super::library::{Library, SmiError};

/// Prints fields as comma-separated values.
pub(super) fn print(
    library: &Library,
    readings: &[Reading],
    fields: &str,
    format: &str,
) -> Result<String, SmiError> {
    let options: Vec<&str> = format.split(',').map(str::trim).collect();
    if let Some(unknown) = options.iter().find(|option| !["csv", "noheader", "nounits"].contains(option)) {
        return Err(SmiError::UnknownFormat((*unknown).to_owned()));
    }
    if !options.contains(&"csv") {
        return Err(SmiError::UnknownFormat(format.to_owned()));
    }
    let units = !options.contains(&"nounits");
    let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
    let unit_of = |field: &str| unit(field).ok_or_else(|| SmiError::UnknownField(field.to_owned()));
    let mut lines = Vec::new();
    let header: Vec<String> = fields
        .iter()
        .map(|field| {
            let unit = unit_of(field)?;
            Ok(if unit.is_empty() || !units { (*field).to_owned() } else { format!("{field} [{unit}]") })
        })
        .collect::<Result<_, SmiError>>()?;
    if !options.contains(&"noheader") {
        lines.push(header.join(", "));
    }
    for reading in readings {
        let row: Vec<String> = fields
            .iter()
            .map(|field| {
                let unit = unit_of(field)?;
                Ok(match value(library, readings.len(), reading, field) {
                    Ok(value) if unit.is_empty() || !units => value,
                    Ok(value) => format!("{value} {unit}"),
                    Err(3 | 13) => "[N/A]".to_owned(),
                    Err(code) => format!("[{}]", library.error_text(code)),
                })
            })
            .collect::<Result<_, SmiError>>()?;
        lines.push(row.join(", "));
    }
    Ok(lines.join("\n") + "\n")
}

/// Unit of a field; `None` for an unknown one.
fn unit(field: &str) -> Option<&'static str> {
    Some(match field {
        "memory.total" | "memory.used" | "memory.free" | "memory.reserved" => "MiB",
        "utilization.gpu" | "utilization.memory" => "%",
        "power.draw" | "power.limit" | "enforced.power.limit" => "W",
        "fan.speed" => "%",
        "clocks.gr"
        | "clocks.current.graphics"
        | "clocks.sm"
        | "clocks.current.sm"
        | "clocks.mem"
        | "clocks.current.memory"
        | "clocks.max.sm"
        | "clocks.max.memory" => "MHz",
        "driver_version"
        | "count"
        | "name"
        | "gpu_name"
        | "serial"
        | "gpu_serial"
        | "uuid"
        | "gpu_uuid"
        | "index"
        | "minor_number"
        | "pci.bus_id"
        | "gpu_bus_id"
        | "pci.domain"
        | "pci.bus"
        | "pci.device"
        | "pci.device_id"
        | "pci.sub_device_id"
        | "compute_cap"
        | "compute_mode"
        | "persistence_mode"
        | "mig.mode.current"
        | "mig.mode.pending"
        | "ecc.mode.current"
        | "ecc.mode.pending"
        | "temperature.gpu"
        | "vbios_version"
        | "pstate"
        | "pcie.link.gen.current"
        | "pcie.link.gen.max"
        | "pcie.link.width.current"
        | "pcie.link.width.max" => "",
        _ => return None,
    })
}

fn value(library: &Library, count: usize, reading: &Reading, field: &str) -> Result<String, u32> {
    let watts = |milliwatts: u32| format!("{}.{:02}", milliwatts / 1000, milliwatts % 1000 / 10);
    let number = |function| library.value::<u32>(function, reading.device).map(|value| value.to_string());
    // nvmlClockType_t: 0 graphics, 1 multiprocessors, 2 memory.
    let clock = |function, kind| {
        library.value_of::<u32>(function, reading.device, kind).map(|value| value.to_string())
    };
    Ok(match field {
        "driver_version" => library.text0("nvmlSystemGetDriverVersion")?,
        "count" => count.to_string(),
        "name" | "gpu_name" => reading.name.clone()?,
        "serial" | "gpu_serial" => reading.serial.clone()?,
        "uuid" | "gpu_uuid" => reading.uuid.clone()?,
        "index" => reading.index.to_string(),
        "minor_number" => reading.minor?.to_string(),
        "pci.bus_id" | "gpu_bus_id" => reading.pci?.id(),
        "pci.domain" => format!("0x{:04X}", reading.pci?.domain),
        "pci.bus" => format!("0x{:02X}", reading.pci?.bus),
        "pci.device" => format!("0x{:02X}", reading.pci?.device),
        "pci.device_id" => format!("0x{:08X}", reading.pci?.device_id),
        "pci.sub_device_id" => format!("0x{:08X}", reading.pci?.subsystem_id),
        "memory.total" => mib(reading.memory?.total).to_string(),
        "memory.used" => mib(reading.memory?.used).to_string(),
        "memory.free" => mib(reading.memory?.free).to_string(),
        "memory.reserved" => mib(reading.memory?.reserved).to_string(),
        "utilization.gpu" => reading.utilization?[0].to_string(),
        "utilization.memory" => reading.utilization?[1].to_string(),
        "power.draw" => watts(reading.power?),
        "power.limit" | "enforced.power.limit" => watts(reading.power_limit?),
        "compute_cap" => reading.capability.map(|(major, minor)| format!("{major}.{minor}"))?,
        "compute_mode" => reading.compute_mode.map(|_| reading.compute_mode_text().to_owned())?,
        "persistence_mode" => mode(Ok(reading.persistence?)).to_owned(),
        "mig.mode.current" => mode(Ok(reading.mig?.0)).to_owned(),
        "mig.mode.pending" => mode(Ok(reading.mig?.1)).to_owned(),
        "ecc.mode.current" => mode(Ok(reading.ecc?.0)).to_owned(),
        "ecc.mode.pending" => mode(Ok(reading.ecc?.1)).to_owned(),
        "temperature.gpu" => reading.temperature?.to_string(),
        "fan.speed" => number("nvmlDeviceGetFanSpeed")?,
        "pstate" => format!("P{}", number("nvmlDeviceGetPerformanceState")?),
        "pcie.link.gen.current" => number("nvmlDeviceGetCurrPcieLinkGeneration")?,
        "pcie.link.gen.max" => number("nvmlDeviceGetMaxPcieLinkGeneration")?,
        "pcie.link.width.current" => number("nvmlDeviceGetCurrPcieLinkWidth")?,
        "pcie.link.width.max" => number("nvmlDeviceGetMaxPcieLinkWidth")?,
        "clocks.gr" | "clocks.current.graphics" => clock("nvmlDeviceGetClockInfo", 0)?,
        "clocks.sm" | "clocks.current.sm" => clock("nvmlDeviceGetClockInfo", 1)?,
        "clocks.mem" | "clocks.current.memory" => clock("nvmlDeviceGetClockInfo", 2)?,
        "clocks.max.sm" => clock("nvmlDeviceGetMaxClockInfo", 1)?,
        "clocks.max.memory" => clock("nvmlDeviceGetMaxClockInfo", 2)?,
        "vbios_version" => library.text("nvmlDeviceGetVbiosVersion", reading.device)?,
        _ => return Err(3),
    })
}
