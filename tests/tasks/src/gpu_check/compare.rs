use std::collections::BTreeSet;
use std::fmt::Display;

use tessera_api::PciBusId;
use tessera_nvml::{
    CardReadings, ComputeMode, Fabric, FabricState, Library, NvLinkRemote, Nvml, NvmlError, PeerToPeer,
    Process, Reading,
};

use super::smi::{Gpu, Log};

/// One fact from both sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// The card; `None` for the machine.
    pub(super) card: Option<String>,
    /// The compared field.
    pub(super) field: String,
    /// Our crate's value.
    pub(super) ours: String,
    /// `nvidia-smi`'s value.
    pub(super) theirs: Option<String>,
    /// The verdict.
    pub(super) verdict: Verdict,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same.
    Ok,
    /// Different values, or a failure to read ours.
    Different,
    /// A field missing in `nvidia-smi -q -x`, or changing all the time.
    NotCompared,
}

/// Text of both for a missing value.
const NOTHING: &str = "N/A";

/// Prefix for a value whose reading failed.
const FAILED: &str = "FAILED: ";

/// Collects comparisons of one card or the machine.
pub(super) struct Comparing {
    card: Option<String>,
    pub(super) all: Vec<Comparison>,
}

impl Comparison {
    /// A card whose PCI address our crate can't read.
    pub(super) fn unreadable(index: usize, error: &NvmlError) -> Self {
        Comparison {
            card: None,
            field: format!("card {index}"),
            ours: format!("{FAILED}{error}"),
            theirs: None,
            verdict: Verdict::Different,
        }
    }
}

impl Comparing {
    pub(super) fn of(card: Option<PciBusId>) -> Self {
        Comparing { card: card.map(|card| card.to_string()), all: Vec::new() }
    }

    /// Compares by `same`; a missing text of `nvidia-smi` is not compared, unless we failed.
    fn with(&mut self, field: &str, ours: String, theirs: Option<&str>, same: impl Fn(&str, &str) -> bool) {
        let verdict = match theirs {
            _ if ours.starts_with(FAILED) => Verdict::Different,
            None => Verdict::NotCompared,
            Some(theirs) if same(&ours, theirs) => Verdict::Ok,
            Some(_) => Verdict::Different,
        };
        let theirs = theirs.map(str::to_owned);
        self.all.push(Comparison { card: self.card.clone(), field: field.to_owned(), ours, theirs, verdict });
    }

    /// Compares only letters and digits, without case: "Quadro RTX" is "QuadroRTX".
    pub(super) fn loosely(&mut self, field: &str, ours: String, theirs: Option<&str>) {
        let plain = |text: &str| -> String {
            text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        self.with(field, ours, theirs, |one, other| plain(one) == plain(other));
    }

    pub(super) fn exactly(&mut self, field: &str, ours: String, theirs: Option<&str>) {
        self.with(field, ours, theirs, |one, other| one == other);
    }

    /// Shows an ever-changing value, without comparing it.
    pub(super) fn shown(&mut self, field: &str, ours: String, theirs: Option<&str>) {
        self.with(field, ours, theirs, |_, _| true);
        if let Some(last) = self.all.last_mut().filter(|last| last.verdict == Verdict::Ok) {
            last.verdict = Verdict::NotCompared;
        }
    }
}

/// Compares the driver's values.
pub(super) fn machine(nvml: &Library, log: &Log<'_>) -> Vec<Comparison> {
    let mut comparing = Comparing::of(None);
    comparing.exactly("driver version", sure(nvml.driver_version()), log.text(&["driver_version"]));
    comparing.exactly("CUDA version", sure(nvml.cuda_version()), log.text(&["cuda_version"]));
    let count = nvml.addresses().map(|addresses| addresses.len());
    comparing.exactly("cards", sure(count), log.text(&["attached_gpus"]));
    comparing.all
}

/// Compares a card's values.
pub(super) fn card(nvml: &Library, address: PciBusId, log: &Log<'_>) -> Vec<Comparison> {
    let mut comparing = Comparing::of(Some(address));
    let found = log.gpu(address);
    let card = match nvml.card(address) {
        Ok(card) => card,
        Err(error) => {
            comparing.exactly("card", format!("{FAILED}{error}"), None);
            return comparing.all;
        }
    };
    let Some((position, gpu)) = found else {
        comparing.exactly("card", "present".to_owned(), Some("not listed"));
        return comparing.all;
    };
    comparing.exactly("index", sure(card.index.clone()), Some(&position.to_string()));
    identity(&mut comparing, &card, gpu);
    memory(&mut comparing, &card, gpu);
    modes(&mut comparing, &card, gpu);
    fabric(&mut comparing, &card, gpu);
    not_in_smi(&mut comparing, &card);
    activity(&mut comparing, nvml, address, gpu);
    comparing.all
}

fn identity(comparing: &mut Comparing, card: &CardReadings, gpu: Gpu<'_>) {
    comparing.exactly("minor number", sure(card.minor.clone()), gpu.text(&["minor_number"]));
    comparing.exactly("UUID", sure(card.uuid.clone()), gpu.text(&["uuid"]));
    comparing.exactly("name", sure(card.name.clone()), gpu.text(&["product_name"]));
    let brand = maybe(card.brand.clone().map(|brand| brand.and_then(tessera_nvml::Brand::name)));
    comparing.loosely("brand", brand, gpu.text(&["product_brand"]));
    let architecture =
        card.architecture.clone().map(|number| number.and_then(tessera_nvml::Architecture::name));
    comparing.loosely("architecture", maybe(architecture), gpu.text(&["product_architecture"]));
}

fn memory(comparing: &mut Comparing, card: &CardReadings, gpu: Gpu<'_>) {
    let of = |part: fn(tessera_nvml::Memory) -> u64| {
        maybe(card.memory.clone().map(|memory| memory.map(|memory| format!("{} MiB", part(memory) >> 20))))
    };
    let theirs = |part| gpu.text(&["fb_memory_usage", part]);
    comparing.exactly("memory, total", of(|memory| memory.total), theirs("total"));
    comparing.with("memory, reserved", of(|memory| memory.reserved), theirs("reserved"), within_a_mebibyte);
    comparing.shown("memory, used", of(|memory| memory.used), theirs("used"));
    comparing.shown("memory, free", of(|memory| memory.free), theirs("free"));
}

/// `nvidia-smi` rounds the reserved part up in some versions.
fn within_a_mebibyte(one: &str, other: &str) -> bool {
    let number = |text: &str| text.strip_suffix(" MiB").and_then(|number| number.parse::<i64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 1,
        _ => one == other,
    }
}

fn modes(comparing: &mut Comparing, card: &CardReadings, gpu: Gpu<'_>) {
    let mig = |part: fn(tessera_nvml::MigMode) -> bool| {
        maybe(card.mig.clone().map(|mode| mode.map(|mode| if part(mode) { "Enabled" } else { "Disabled" })))
    };
    comparing.exactly("MIG mode, current", mig(|mode| mode.current), gpu.text(&["mig_mode", "current_mig"]));
    comparing.exactly("MIG mode, pending", mig(|mode| mode.pending), gpu.text(&["mig_mode", "pending_mig"]));
    let compute = maybe(card.compute_mode.clone().map(|mode| {
        mode.map(|mode| match mode {
            ComputeMode::Default => "Default",
            ComputeMode::ExclusiveThread => "Exclusive_Thread",
            ComputeMode::Prohibited => "Prohibited",
            ComputeMode::ExclusiveProcess => "Exclusive_Process",
        })
    }));
    comparing.loosely("compute mode", compute, gpu.text(&["compute_mode"]));
    let addressing = card.addressing_mode.clone().map(|mode| mode.map(tessera_nvml::AddressingMode::name));
    comparing.loosely("addressing mode", maybe(addressing), gpu.text(&["addressing_mode"]));
}

fn fabric(comparing: &mut Comparing, card: &CardReadings, gpu: Gpu<'_>) {
    let state = maybe(card.fabric.clone().map(|fabric| {
        fabric.map(|fabric| match fabric.state {
            FabricState::NotStarted => "Not Started",
            FabricState::InProgress => "In Progress",
            FabricState::Completed | FabricState::Failed => "Completed",
        })
    }));
    comparing.loosely("fabric, state", state, gpu.text(&["fabric", "state"]));
    let is_registered =
        |fabric: &Fabric| matches!(fabric.state, FabricState::Completed | FabricState::Failed);
    let registered = card.fabric.clone().map(|fabric| fabric.filter(is_registered));
    let clique = maybe(registered.clone().map(|fabric| fabric.map(|fabric| fabric.clique)));
    comparing.exactly("fabric, clique", clique, gpu.text(&["fabric", "cliqueId"]));
    let cluster = maybe(registered.map(|fabric| fabric.map(|fabric| fabric.cluster)));
    comparing.loosely("fabric, cluster", cluster, gpu.text(&["fabric", "clusterUuid"]));
}

/// Values found elsewhere in `nvidia-smi` (`nvlink`, `topo`, `--query-gpu`), or not at all.
fn not_in_smi(comparing: &mut Comparing, card: &CardReadings) {
    comparing.shown("compute capability", maybe(card.compute_capability.clone()), None);
    comparing.shown("NUMA node of the memory", maybe(card.memory_numa_node.clone()), None);
    comparing.shown("CPU affinity", maybe(card.cpu_affinity.clone()), None);
    let links = match &card.links {
        Ok(links) if links.is_empty() => NOTHING.to_owned(),
        Ok(links) => format!("{} of {} active", links.iter().filter(|link| link.active).count(), links.len()),
        Err(error) => format!("{FAILED}{error}"),
    };
    comparing.shown("NVLinks", links, None);
    for link in card.links.iter().flatten().filter(|link| link.active) {
        let remote = maybe(link.remote.clone().map(|remote| {
            remote.map(|remote| match remote {
                NvLinkRemote::Gpu(address) => format!("GPU {address}"),
                NvLinkRemote::Switch => "switch".to_owned(),
                NvLinkRemote::Other => "something else".to_owned(),
            })
        }));
        let text = format!(
            "version {}, {} MB/s, to {remote}",
            maybe(link.version.clone().map(|version| version.map(|version| format!("{version:?}")))),
            maybe(link.megabytes_per_second.clone()),
        );
        comparing.shown(&format!("NVLink {}", link.link), failed_if_a_part_did(text), None);
    }
}

fn activity(comparing: &mut Comparing, nvml: &Library, address: PciBusId, gpu: Gpu<'_>) {
    let utilization = nvml.utilization(address);
    let of = |part: fn(tessera_nvml::Utilization) -> u32| {
        maybe(utilization.clone().map(|rates| rates.map(|rates| format!("{} %", part(rates)))))
    };
    comparing.shown("utilization, GPU", of(|rates| rates.gpu), gpu.text(&["utilization", "gpu_util"]));
    comparing.shown(
        "utilization, memory",
        of(|rates| rates.memory),
        gpu.text(&["utilization", "memory_util"]),
    );
    let pids = |processes: Vec<Process>| {
        let pids: BTreeSet<u32> = processes.iter().map(|process| process.pid).collect();
        list(pids.iter())
    };
    let ours = maybe(nvml.processes(address).map(|processes| processes.map(pids)));
    comparing.shown("processes", ours, gpu.pids().map(|pids| list(pids.iter())).as_deref());
}

/// A card's connections to others, missing in `nvidia-smi -q -x`.
pub(super) fn pairs(nvml: &Library, one: PciBusId, others: &[PciBusId]) -> Vec<Comparison> {
    let mut comparing = Comparing::of(Some(one));
    for &other in others {
        let text = match nvml.pair(one, other) {
            Ok(pair) => {
                let ancestor =
                    maybe(pair.common_ancestor.map(|level| level.map(|level| format!("{level:?}"))));
                let nvlink = maybe(pair.nvlink.map(|status| {
                    status.map(|status| if status == PeerToPeer::Ok { "NVLink" } else { "no NVLink" })
                }));
                format!("{ancestor}, {nvlink}")
            }
            Err(error) => format!("{FAILED}{error}"),
        };
        comparing.shown(&format!("with {other}"), failed_if_a_part_did(text), None);
    }
    comparing.all
}

fn failed_if_a_part_did(text: String) -> String {
    if text.contains(FAILED) && !text.starts_with(FAILED) { format!("{FAILED}{text}") } else { text }
}

/// Cards listed by `nvidia-smi` but not by our crate.
pub(super) fn unseen(cards: &[PciBusId], log: &Log<'_>) -> Vec<Comparison> {
    let mut all = Vec::new();
    for gpu in log.gpus() {
        let address = gpu.address();
        if address.is_none_or(|address| !cards.contains(&address)) {
            let mut comparing = Comparing::of(address);
            comparing.exactly("card", "not listed".to_owned(), Some("present"));
            all.append(&mut comparing.all);
        }
    }
    all
}

fn sure<T: Display>(answer: Result<T, NvmlError>) -> String {
    answer.map_or_else(|error| format!("{FAILED}{error}"), |value| value.to_string())
}

fn maybe<T: Display>(answer: Reading<T>) -> String {
    match answer {
        Ok(Some(value)) => value.to_string(),
        Ok(None) => NOTHING.to_owned(),
        Err(error) => format!("{FAILED}{error}"),
    }
}

fn list<T: Display>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(" ") }
}
