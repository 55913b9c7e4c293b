//! The table, and the list of `-L`.

use std::fmt::Write;

use super::card::{Reading, mib, mode};
use super::library::Library;
use crate::machine::build::cuda_number;

const WIDTH: usize = 89;

/// `nvidia-smi -L`
pub(super) fn list(readings: &[Reading]) -> String {
    let mut text = String::new();
    for reading in readings {
        let name = reading.name.as_deref().unwrap_or("Unknown Error");
        let uuid = reading.uuid.as_deref().unwrap_or("Unknown Error");
        let _ = writeln!(text, "GPU {}: {name} (UUID: {uuid})", reading.index);
        for device in &reading.mig_devices {
            let uuid = device.uuid.as_deref().unwrap_or("Unknown Error");
            let _ =
                writeln!(text, "  MIG {:<11} Device {:>2}: (UUID: {uuid})", device.profile(), device.index);
        }
    }
    text
}

/// `nvidia-smi --version`
pub(super) fn versions(library: &Library) -> String {
    let text = |name: &str| library.text0(name).unwrap_or_else(|_| "N/A".to_owned());
    let driver = text("nvmlSystemGetDriverVersion");
    // The library's version begins with CUDA's: 13.580.105.08, with two numbers shown.
    let nvml: Vec<String> =
        text("nvmlSystemGetNVMLVersion").split('.').skip(1).take(2).map(str::to_owned).collect();
    format!(
        "NVIDIA-SMI version  : {driver}\nNVML version        : {}\nDRIVER version      : {driver}\nCUDA Version        : {}\n",
        nvml.join("."),
        cuda(library)
    )
}

fn cuda(library: &Library) -> String {
    library.value0::<i32>("nvmlSystemGetCudaDriverVersion_v2").map_or("N/A".to_owned(), cuda_text)
}

/// `nvidia-smi`
pub(super) fn print(library: &Library, readings: &[Reading]) -> String {
    let driver = library.text0("nvmlSystemGetDriverVersion").unwrap_or_default();
    let cuda = cuda(library);
    let rule = format!("+{}+\n", "-".repeat(WIDTH));
    let mut text = rule.clone();
    let mut line = |content: String| {
        let _ = writeln!(text, "| {content:<width$} |", width = WIDTH - 2);
    };
    line(format!("NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda}"));
    line("GPU  Name                                          Persistence-M  Bus-Id            ECC".into());
    line("     Temp    Pwr:Usage/Cap    Memory-Usage             GPU-Util   Compute M.   MIG M.".into());
    line("=".repeat(WIDTH - 2));
    for reading in readings {
        let name = reading.name.as_deref().unwrap_or("Unknown Error");
        let bus = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
        let errors = if reading.ecc.is_ok() { "0" } else { "N/A" };
        let persistence = if mode(reading.persistence) == "Enabled" { "On" } else { "Off" };
        line(format!("{:>3}  {name:<46}{persistence:<15}{bus:<18}{errors}", reading.index));
        let temperature = reading.temperature.map_or("N/A".to_owned(), |celsius| format!("{celsius}C"));
        let watts =
            |value: Result<u32, u32>| value.map_or("N/A".to_owned(), |value| format!("{}W", value / 1000));
        let power = format!("{} / {}", watts(reading.power), watts(reading.power_limit));
        let memory = reading
            .memory
            .map_or("N/A".to_owned(), |memory| format!("{}MiB / {}MiB", mib(memory.used), mib(memory.total)));
        let busy = reading.utilization.map_or("N/A".to_owned(), |[gpu, _]| format!("{gpu}%"));
        // Shortened as in the real table.
        let compute = match reading.compute_mode_text() {
            "Exclusive_Process" => "E. Process",
            text => text,
        };
        let mig = mode(reading.mig.map(|(current, _)| current));
        line(format!("     {temperature:<8}{power:<17}{memory:<25}{busy:<11}{compute:<13}{mig}",));
    }
    text.push_str(&rule);
    if readings.iter().any(|reading| reading.mig.is_ok_and(|(current, _)| current == 1)) {
        mig_devices(&mut text, readings);
        text.push_str(&rule);
    }
    let _ = writeln!(text, "| {:<width$} |", "Processes:", width = WIDTH - 2);
    let mut any = false;
    for reading in readings {
        for process in reading.processes.iter().flatten() {
            any = true;
            let [gpu_instance, compute_instance] = process.instances.map(|id| match id {
                u32::MAX => "N/A".to_owned(),
                id => id.to_string(),
            });
            let content = format!(
                "{:>5}  {gpu_instance:>4} {compute_instance:>4}   PID {:<10} C   {}MiB",
                reading.index,
                process.pid,
                mib(process.used)
            );
            let _ = writeln!(text, "| {content:<width$} |", width = WIDTH - 2);
        }
    }
    if !any {
        let _ = writeln!(text, "| {:<width$} |", "  No running processes found", width = WIDTH - 2);
    }
    text.push_str(&rule);
    text
}

fn mig_devices(text: &mut String, readings: &[Reading]) {
    let mut line = |content: String| {
        let _ = writeln!(text, "| {content:<width$} |", width = WIDTH - 2);
    };
    line("MIG devices:".into());
    line("GPU  GI  CI  MIG  Name              Memory-Usage            SM".into());
    let mut any = false;
    for reading in readings {
        for device in &reading.mig_devices {
            any = true;
            let id = |id: Result<u32, u32>| id.map_or("N/A".to_owned(), |id| id.to_string());
            let memory = device.memory.map_or("N/A".to_owned(), |memory| {
                format!("{}MiB / {}MiB", mib(memory.used), mib(memory.total))
            });
            let multiprocessors =
                device.attributes.map_or("N/A".to_owned(), |it| it.multiprocessorCount.to_string());
            line(format!(
                "{:>3} {:>3} {:>3} {:>4}  {:<17} {memory:<23} {multiprocessors}",
                reading.index,
                id(device.gpu_instance),
                id(device.compute_instance),
                device.index,
                device.profile()
            ));
        }
    }
    if !any {
        line("  No MIG devices found".into());
    }
}

/// 13000 is 13.0.
pub(super) fn cuda_text(number: i32) -> String {
    let text = format!("{}.{}", number / 1000, number % 1000 / 10);
    debug_assert_eq!(cuda_number(&text), Some(number));
    text
}
