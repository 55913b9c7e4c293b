use std::collections::BTreeSet;
use std::path::Path;
use std::{fmt, fs};

use tessera_api::PciBusId;
use tessera_nvml::Nvml;

/// Largest number of processes named by an error.
const MOST: usize = 8;

/// Longest program name, as Linux truncates it (`TASK_COMM_LEN`), without the final NUL.
const LONGEST_NAME: usize = 15;

/// The processes on a card or a GPU instance, as far as the driver names them. Displayed for an error: `process 4711
/// (python3)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients(Vec<String>);

/// The processes on a card, or on one of its GPU instances. `proc` is this process's procfs, for the names of programs.
/// Blocks for calls of the driver.
#[must_use]
pub fn clients(nvml: &dyn Nvml, proc: &Path, card: PciBusId, gpu_instance: Option<u32>) -> Clients {
    let processes = nvml.processes(card).ok().flatten().unwrap_or_default();
    let wanted = processes
        .iter()
        .filter(|process| gpu_instance.is_none_or(|id| process.gpu_instance.is_none_or(|its| its == id)));
    let pids: BTreeSet<u32> = wanted.map(|process| process.pid).filter(|pid| *pid != 0).collect();
    let mut names: Vec<String> = pids.iter().take(MOST).map(|pid| describe(proc, *pid)).collect();
    if pids.len() > MOST {
        names.push(format!("{} more", pids.len() - MOST));
    }
    Clients(names)
}

impl Clients {
    /// Whether the driver names none.
    #[must_use]
    pub const fn are_unnamed(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_unnamed() {
            return formatter.write_str(
                "programs that the driver does not name; a monitor, as DCGM or nvidia-smi, is such a one",
            );
        }
        formatter.write_str(&self.0.join(", "))
    }
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
