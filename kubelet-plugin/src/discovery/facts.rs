//! What NVML and sysfs say of cards, as [`tessera_inventory`] wants it.

use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_inventory::machine::{self, Card, Pair};
use tessera_nvml::{self as nvml, Nvml, NvmlError, PciAddress};

use super::mig::MigReader;
use super::own_partitions::OwnPartitions;
use super::problem::Problems;
use super::sysfs::Sysfs;

/// `None` for an address that can't be: the driver answered nonsense.
pub(super) fn pci_bus_id(address: PciAddress) -> Option<PciBusId> {
    PciBusId::new(address.domain, address.bus, address.device, 0).ok()
}

/// Where the facts of a card come from.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) nvml: Arc<dyn Nvml>,
    pub(super) sysfs: Arc<Sysfs>,
    /// `None` before the journal is open: then nobody's instances are told.
    pub(super) own: Option<Arc<dyn OwnPartitions>>,
}

/// The facts of a card that answers; a fact that can't be read stays as `known`. `None` where the card doesn't say who it
/// is and never did.
pub(super) fn card(
    pci: PciBusId,
    read: nvml::Card,
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
    // Another card in the same slot: nothing of the old one holds.
    let known = known.filter(|known| known.uuid.as_ref() == Some(&uuid));
    let mut next = known.cloned().unwrap_or_else(|| Card::new(pci));
    next.uuid = Some(uuid);
    next.index = problems.take(own, "index", read.index.map(Some), next.index);
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
    let capability = read.compute_capability.map(|capability| {
        capability.map(|nvml::ComputeCapability { major, minor }| machine::ComputeCapability { major, minor })
    });
    next.compute_capability =
        problems.take(own, "cudaComputeCapability", capability, next.compute_capability);
    next.cores = problems.take(own, "cores", read.cores, next.cores);
    let addressing_mode =
        read.addressing_mode.map(|mode| mode.map(|mode| nvml::AddressingMode::name(mode).to_owned()));
    next.addressing_mode = problems.take(own, "addressingMode", addressing_mode, next.addressing_mode);
    // Another amount is reserved in MIG mode, on which what is published shall not depend.
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
        address: read.address,
        pci,
        uuid: next.uuid.as_deref().unwrap_or_default(),
        own: own_partitions.as_deref(),
    };
    next.mig = mig.read(read.mig, architecture, next.mig.take(), problems);
    next.nvlinks = nvlinks(pci, read.links, next.nvlinks, problems);
    next.fabric = match read.fabric {
        Ok(answer) => answer.and_then(fabric),
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
    answer: Result<Vec<nvml::NvLink>, NvmlError>,
    known: Option<Vec<machine::NvLink>>,
    problems: &mut Problems,
) -> Option<Vec<machine::NvLink>> {
    let links = match answer {
        Ok(links) => links,
        Err(error) => {
            problems.add(Some(pci), "nvlinks", error);
            return known;
        }
    };
    let active: Vec<_> = links.into_iter().filter(|link| link.active).collect();
    // Else it can't be told which of them is which of those known.
    let known = known.filter(|known| known.len() == active.len()).unwrap_or_default();
    let mut known = known.into_iter();
    let link = |link: nvml::NvLink| {
        let known = known.next();
        let version = link.version.map(|version| version.and_then(machine::NvLinkVersion::from_nvml));
        let known_version = known.and_then(|known| known.version);
        let version = problems.take(Some(pci), "nvlink's version", version, known_version);
        let known_remote = known.map(|known| known.remote);
        let remote = remote(pci, link.remote_type, link.remote_address, problems).or(known_remote);
        machine::NvLink { remote: remote.unwrap_or(machine::NvLinkRemote::Other), version }
    };
    Some(active.into_iter().map(link).collect())
}

/// What a link leads to; `None` where that can't be read.
fn remote(
    pci: PciBusId,
    kind: nvml::Reading<nvml::NvLinkRemote>,
    address: nvml::Reading<PciAddress>,
    problems: &mut Problems,
) -> Option<machine::NvLinkRemote> {
    let other = machine::NvLinkRemote::Other;
    let remote = match kind {
        Ok(Some(nvml::NvLinkRemote::Switch)) => Ok(machine::NvLinkRemote::Switch),
        Ok(Some(nvml::NvLinkRemote::Gpu)) => {
            let gpu = |address| pci_bus_id(address).map(machine::NvLinkRemote::Gpu);
            address
                .map(|address| address.and_then(gpu).unwrap_or(other))
                .map_err(|error| ("nvlink's remote address", error))
        }
        Ok(Some(nvml::NvLinkRemote::Npu) | None) => Ok(other),
        Err(error) => Err(("nvlink's remote type", error)),
    };
    remote.inspect_err(|(fact, error)| problems.add(Some(pci), fact, error)).ok()
}

fn fabric(read: nvml::Fabric) -> Option<machine::Fabric> {
    let state = match read.state {
        nvml::FabricState::NotSupported => return None,
        nvml::FabricState::NotStarted => machine::FabricState::NotStarted,
        nvml::FabricState::InProgress => machine::FabricState::InProgress,
        nvml::FabricState::Completed if read.status == 0 => machine::FabricState::Completed,
        nvml::FabricState::Completed => machine::FabricState::Failed,
    };
    Some(machine::Fabric { state, cluster_uuid: Some(read.cluster.to_string()), clique_id: read.clique })
}

/// What two cards say of each other; what can't be read stays as `known`.
pub(super) fn pair(
    own: PciBusId,
    other: PciBusId,
    answer: Result<nvml::Pair, NvmlError>,
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
        Ok(ancestor) => ancestor.map(common_ancestor),
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

fn common_ancestor(level: nvml::CommonAncestor) -> machine::CommonAncestor {
    match level {
        nvml::CommonAncestor::Internal => machine::CommonAncestor::Internal,
        nvml::CommonAncestor::SingleSwitch => machine::CommonAncestor::SingleSwitch,
        nvml::CommonAncestor::MultipleSwitches => machine::CommonAncestor::MultipleSwitches,
        nvml::CommonAncestor::HostBridge => machine::CommonAncestor::HostBridge,
        nvml::CommonAncestor::Node => machine::CommonAncestor::Node,
        nvml::CommonAncestor::System => machine::CommonAncestor::System,
    }
}
