//! `nvidia-smi topo -m`.

use std::fmt::Write;

use super::card::{Pci, Reading};
use super::library::{Device, Library};

/// `nvidia-smi topo`
#[derive(clap::Args)]
#[group(required = true)]
pub(super) struct Topology {
    /// Shows how each two cards are connected, and to which CPUs they are near.
    #[arg(short, long)]
    matrix: bool,
}

/// NVML_NVLINK_MAX_LINKS
const LINKS: u32 = 18;
/// Words of 64 CPUs.
const CPU_WORDS: u32 = 16;
/// `NVML_AFFINITY_SCOPE_NODE`
const NODE: u32 = 0;
/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`
const SWITCH: u32 = 2;
/// `NVML_P2P_CAPS_INDEX_NVLINK`
const NVLINK: u32 = 2;

const LEGEND: &str = "
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
";

/// Prints the matrix.
pub(super) fn print(library: &Library, readings: &[Reading]) -> String {
    let mut text = String::new();
    for reading in readings {
        let _ = write!(text, "\tGPU{}", reading.index);
    }
    text.push_str("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for one in readings {
        let _ = write!(text, "GPU{}", one.index);
        for other in readings {
            let _ = write!(text, "\t{}", connection(library, one, other));
        }
        let cpus = library.set_of("nvmlDeviceGetCpuAffinity", one.device, CPU_WORDS, None);
        let nodes = library.set_of("nvmlDeviceGetMemoryAffinity", one.device, 1, Some(NODE));
        let own: Result<u32, u32> = library.value("nvmlDeviceGetNumaNodeId", one.device);
        let own = own.map_or("N/A".to_owned(), |node| node.to_string());
        let _ = writeln!(text, "\t{}\t{}\t\t{own}", ranges(cpus), ranges(nodes));
    }
    text + LEGEND
}

fn connection(library: &Library, one: &Reading, other: &Reading) -> String {
    if one.index == other.index {
        return " X ".to_owned();
    }
    let linked = library.value_between("nvmlDeviceGetP2PStatus", one.device, other.device, NVLINK);
    if linked == Ok(0)
        && let links @ 1.. = links(library, one.device, other)
    {
        return format!("NV{links}");
    }
    // nvmlGpuTopologyLevel_t
    match library.level(one.device, other.device) {
        Ok(0) => "INT",
        Ok(10) => "PIX",
        Ok(20) => "PXB",
        Ok(30) => "PHB",
        Ok(40) => "NODE",
        Ok(50) => "SYS",
        _ => "N/A",
    }
    .to_owned()
}

/// Active NVLinks of a card to the other, or to a switch.
fn links(library: &Library, device: Device, other: &Reading) -> usize {
    let leads_there = |link: u32| {
        let active: Result<u32, u32> = library.value_of("nvmlDeviceGetNvLinkState", device, link);
        let kind: Result<u32, u32> = library.value_of("nvmlDeviceGetNvLinkRemoteDeviceType", device, link);
        let remote: Result<Pci, u32> = library.value_of("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link);
        let is_other = || matches!((remote, other.pci), (Ok(one), Ok(other)) if one.id() == other.id());
        active == Ok(1) && (kind == Ok(SWITCH) || is_other())
    };
    (0..LINKS).filter(|link| leads_there(*link)).count()
}

/// Numbers of the set bits, as `0-3,8`.
fn ranges(words: Result<Vec<u64>, u32>) -> String {
    let Ok(words) = words else { return "N/A".to_owned() };
    let is_set = |number: usize| words.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1);
    let mut parts = Vec::new();
    let mut number = 0;
    while number < words.len() * 64 {
        let first = number;
        while is_set(number) {
            number += 1;
        }
        match number - first {
            0 => number += 1,
            1 => parts.push(first.to_string()),
            _ => parts.push(format!("{first}-{}", number - 1)),
        }
    }
    parts.join(",")
}
