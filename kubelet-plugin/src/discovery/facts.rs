//! Reads the facts of cards from NVML and sysfs, in the form of [`tessera_inventory`].

use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_api::facts::{NvLink, NvLinkRemote};
use tessera_api::health::HealthClass;
use tessera_inventory::machine::{Card, Pair};
use tessera_nvml::{self as nvml, Nvml, NvmlError};

use super::faults;
use super::mig::MigReader;
use super::own_partitions::OwnPartitions;
use super::problem::Problems;
use super::sysfs::Sysfs;

/// Sources of a card's facts.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) nvml: Arc<dyn Nvml>,
    pub(super) sysfs: Arc<Sysfs>,
    /// `None` until the journal is open: until then no instances are reported.
    pub(super) own: Option<Arc<dyn OwnPartitions>>,
}

/// The facts of an answering card; an unreadable fact stays as in `known`. `None` if the card's identity is
/// unknown.
pub(super) fn card(
    pci: PciBusId,
    read: nvml::CardReadings,
    sources: &Sources,
    known: Option<&Card>,
    problems: &mut Problems,
) -> Option<Card> {
    let own = Some(pci);
    let uuid = problems.take(own, "uuid", read.uuid.map(Some), known.and_then(|known| known.uuid.clone()));
    let Some(uuid) = uuid else {
        problems.add(own, "card", "left out: without its UUID it can't be told from another");
        return None;
    };
    // Another card in the same slot: nothing known about the old one applies.
    let known = known.filter(|known| known.uuid.as_ref() == Some(&uuid));
    let mut next = known.cloned().unwrap_or_else(|| Card::new(pci));
    next.uuid = Some(uuid);
    next.index = problems.take(own, "index", read.index.map(Some), next.index);
    match &read.minor {
        Ok(_) => faults::set(&mut next.faults, HealthClass::MinorNumber, false),
        Err(error) if error.is_unsupported() || next.minor.is_none() => {
            faults::set(&mut next.faults, HealthClass::MinorNumber, true);
        }
        // Known from before, and perhaps readable again later.
        Err(_) => {}
    }
    next.minor = problems.take(own, "minor", read.minor.map(Some), next.minor);
    next.pci_device_id =
        problems.take(own, "PCI device id", read.pci_device_id.map(Some), next.pci_device_id);
    next.product_name = problems.take(own, "productName", read.name.map(Some), next.product_name);
    next.brand = problems.take(own, "brand", named(read.brand, nvml::Brand::name), next.brand);
    let architecture = read.architecture.as_ref().ok().copied().flatten();
    next.architecture = problems.take(
        own,
        "architecture",
        named(read.architecture, nvml::Architecture::name),
        next.architecture,
    );
    next.compute_capability =
        problems.take(own, "cudaComputeCapability", read.compute_capability, next.compute_capability);
    next.cores = problems.take(own, "cores", read.cores, next.cores);
    let addressing_mode =
        read.addressing_mode.map(|mode| mode.map(|mode| nvml::AddressingMode::name(mode).to_owned()));
    next.addressing_mode = problems.take(own, "addressingMode", addressing_mode, next.addressing_mode);
    // MIG mode reserves a different amount, which must not change the published capacity.
    let is_divided = matches!(&read.mig, Ok(Some(mode)) if mode.current);
    if let Ok(Some(memory)) = &read.memory
        && (!is_divided || next.reserved_memory_bytes == 0)
    {
        next.reserved_memory_bytes = memory.reserved;
    }
    next.memory_bytes = problems.take(
        own,
        "memory",
        read.memory.map(|memory| memory.map(|memory| memory.total)),
        next.memory_bytes,
    );
    if let Ok(mode) = &read.mig {
        next.mig_capable = Some(mode.is_some());
    }
    let Sources { nvml, sysfs, own: own_partitions } = sources;
    let mig = MigReader {
        nvml: &**nvml,
        pci,
        uuid: next.uuid.as_deref().unwrap_or_default(),
        own: own_partitions.as_deref(),
    };
    next.mig = mig.read(read.mig, architecture, next.mig.take(), problems);
    next.nvlinks = nvlinks(pci, read.links, next.nvlinks, problems);
    next.fabric = match read.fabric {
        Ok(fabric) => fabric,
        Err(error) => {
            problems.add(own, "fabric", error);
            next.fabric
        }
    };
    place(&mut next, sysfs, problems);
    Some(next)
}

fn named<T: Copy>(answer: nvml::Reading<T>, name: fn(T) -> Option<&'static str>) -> nvml::Reading<String> {
    answer.map(|value| value.and_then(name).map(str::to_owned))
}

fn place(card: &mut Card, sysfs: &Sysfs, problems: &mut Problems) {
    match sysfs.pcie_root(card.pci) {
        Ok(root) => card.pcie_root = Some(root),
        Err(error) => problems.add(Some(card.pci), "pcieRoot", error),
    }
    match sysfs.numa_node(card.pci) {
        Ok(node) => card.numa_node = node,
        Err(error) => problems.add(Some(card.pci), "numaNode", error),
    }
}

fn nvlinks(
    pci: PciBusId,
    answer: Result<Vec<nvml::NvLinkReadings>, NvmlError>,
    known: Option<Vec<NvLink>>,
    problems: &mut Problems,
) -> Option<Vec<NvLink>> {
    let links = match answer {
        Ok(links) => links,
        Err(error) => {
            problems.add(Some(pci), "nvlinks", error);
            return known;
        }
    };
    let active: Vec<_> = links.into_iter().filter(|link| link.active).collect();
    // With another number of links, the known ones cannot be matched.
    let known = known.filter(|known| known.len() == active.len()).unwrap_or_default();
    let mut known = known.into_iter();
    let link = |link: nvml::NvLinkReadings| {
        let known = known.next();
        let known_version = known.and_then(|known| known.version);
        let version = problems.take(Some(pci), "nvlink's version", link.version, known_version);
        let remote =
            problems.take(Some(pci), "nvlink's remote", link.remote, known.map(|known| known.remote));
        NvLink { remote: remote.unwrap_or(NvLinkRemote::Other), version }
    };
    Some(active.into_iter().map(link).collect())
}

/// The report of two cards about each other; an unreadable fact stays as in `known`.
pub(super) fn pair(
    own: PciBusId,
    other: PciBusId,
    answer: Result<nvml::PairReadings, NvmlError>,
    known: Pair,
    problems: &mut Problems,
) -> Pair {
    let unread = |error: NvmlError, problems: &mut Problems| {
        problems.add(Some(own), "pairs", format!("with {other}: {error}"));
    };
    let pair = match answer {
        Ok(pair) => pair,
        Err(error) => {
            unread(error, problems);
            return known;
        }
    };
    let common_ancestor = match pair.common_ancestor {
        Ok(ancestor) => ancestor,
        Err(error) => {
            unread(error, problems);
            known.common_ancestor
        }
    };
    let nvlink_peer_access = match pair.nvlink {
        Ok(status) => match status {
            None | Some(nvml::PeerToPeer::Unknown) => None,
            Some(status) => Some(status == nvml::PeerToPeer::Ok),
        },
        Err(error) => {
            unread(error, problems);
            known.nvlink_peer_access
        }
    };
    Pair { nvlink_peer_access, common_ancestor }
}
