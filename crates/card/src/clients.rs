use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tessera_api::PciBusId;
use tessera_nvml::Nvml;

/// Largest number of processes that an error names.
const MOST: usize = 8;

/// Longest program name, as Linux truncates it (`TASK_COMM_LEN`), without the final NUL.
const LONGEST_NAME: usize = 15;

/// The processes that use a card, or one of its GPU instances, for an error: `process 4711 (python3)`. `proc` is
/// procfs as this process sees it, for the names of programs. Blocks for calls of the driver.
#[must_use]
pub fn clients(nvml: &dyn Nvml, proc: &Path, card: PciBusId, gpu_instance: Option<u32>) -> String {
    let processes = nvml.processes(card).ok().flatten().unwrap_or_default();
    let wanted = processes
        .iter()
        .filter(|process| gpu_instance.is_none_or(|id| process.gpu_instance.is_none_or(|its| its == id)));
    let pids: BTreeSet<u32> = wanted.map(|process| process.pid).filter(|pid| *pid != 0).collect();
    if pids.is_empty() {
        return "programs that the driver does not name; a monitor, as DCGM or nvidia-smi, is such a one"
            .into();
    }
    let mut names: Vec<String> = pids.iter().take(MOST).map(|pid| describe(proc, *pid)).collect();
    if pids.len() > MOST {
        names.push(format!("{} more", pids.len() - MOST));
    }
    names.join(", ")
}

fn describe(proc: &Path, pid: u32) -> String {
    // A process of another namespace can't be read.
    let name = fs::read(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
    let name: String = String::from_utf8_lossy(&name)
        .chars()
        .filter(|character| !character.is_control())
        .take(LONGEST_NAME)
        .collect();
    if name.is_empty() { format!("process {pid}") } else { format!("process {pid} ({name})") }
}
