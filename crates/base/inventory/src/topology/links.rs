//! Builds the tables of a [`Topology`] from the facts of cards and pairs.

use super::{Square, Topology};
use crate::machine::Machine;
use crate::machine::{Card, CommonAncestor, FabricState, NvLinkRemote, NvLinkVersion, Pairs};

/// Reads the connections of `machine`, its cards sorted by PCI address.
pub fn read(machine: &Machine) -> Topology {
    let cards = machine.cards_by_address();

    let pair = |one: usize, other: usize| (cards[one], cards[other]);
    let count = cards.len();
    let switched = Square::of_pairs(count, |one, other| {
        let (one, other) = pair(one, other);
        links_to_switches(one).min(links_to_switches(other)) > 0
            && reach_through_switches(one, other, &machine.pairs)
    });
    let links = Square::of_pairs(count, |one, other| {
        if *switched.get(one, other) {
            let (one, other) = pair(one, other);
            links_to_switches(one).min(links_to_switches(other))
        } else {
            let (one, other) = pair(one, other);
            direct_links(one, other, &machine.pairs)
        }
    });
    let closeness = Square::of_pairs(count, |one, other| {
        let (one, other) = pair(one, other);
        closeness(one, other, machine.pairs.get(one.pci, other.pci).common_ancestor)
    });
    Topology {
        cards: cards.iter().map(|card| card.pci).collect(),
        links,
        switched,
        closeness,
        link_rate: link_rate(&cards),
        numa_nodes: cards.iter().map(|card| card.numa_node).collect(),
        fabric_domains: cards
            .iter()
            .map(|card| card.fabric.as_ref().and_then(crate::machine::Fabric::domain))
            .collect(),
    }
}

fn links_to_switches(card: &Card) -> u32 {
    count_links(card, |remote| remote == NvLinkRemote::Switch).unwrap_or(0)
}

fn count_links(card: &Card, mut counts: impl FnMut(NvLinkRemote) -> bool) -> Option<u32> {
    let links = card.nvlinks.as_ref()?;
    u32::try_from(links.iter().filter(|link| counts(link.remote)).count()).ok()
}

/// A link to a switch does not identify the cards behind the switch; the driver's answer on peer access does, or a common
/// fabric.
fn reach_through_switches(one: &Card, other: &Card, pairs: &Pairs) -> bool {
    let one_fabric = match (&one.fabric, &other.fabric) {
        (None, None) => None,
        (Some(one), Some(other)) => Some(
            (one.state, other.state) == (FabricState::Completed, FabricState::Completed)
                && (one.cluster, one.clique) == (other.cluster, other.clique),
        ),
        _ => Some(false),
    };
    match pairs.get(one.pci, other.pci).nvlink_peer_access {
        Some(allowed) => allowed && one_fabric != Some(false),
        None => one_fabric == Some(true),
    }
}

/// Links ending at the other card. If the two ends disagree, a link has just gone down.
fn direct_links(one: &Card, other: &Card, pairs: &Pairs) -> u32 {
    if pairs.get(one.pci, other.pci).nvlink_peer_access == Some(false) {
        return 0;
    }
    let there = count_links(one, |remote| remote == NvLinkRemote::Gpu(other.pci));
    let back = count_links(other, |remote| remote == NvLinkRemote::Gpu(one.pci));
    match (there, back) {
        (Some(there), Some(back)) => there.min(back),
        (there, back) => there.or(back).unwrap_or(0),
    }
}

/// Closeness on PCIe as go-gpuallocator scores it: 60 one board, 50 one switch, 40 several, 30 one host bridge, 20 one
/// NUMA node, 10 only the system.
fn closeness(one: &Card, other: &Card, ancestor: Option<CommonAncestor>) -> u32 {
    let stated = match ancestor {
        Some(CommonAncestor::Internal) => 60,
        Some(CommonAncestor::SingleSwitch) => 50,
        Some(CommonAncestor::MultipleSwitches) => 40,
        Some(CommonAncestor::HostBridge) => 30,
        Some(CommonAncestor::Node) => 20,
        Some(CommonAncestor::System) => 10,
        // Below one root complex is at least one host bridge.
        None if one.pcie_root.is_some() && one.pcie_root == other.pcie_root => 30,
        None => 10,
    };
    // Virtual machines report "system" for every pair even where the NUMA nodes are known.
    let same_node = one.numa_node.is_some() && one.numa_node == other.numa_node;
    if same_node { stated.max(20) } else { stated }
}

/// The bandwidth of one link. Links of different generations in one machine are not connected to each other; the
/// fastest counts.
fn link_rate(cards: &[&Card]) -> u32 {
    cards
        .iter()
        .flat_map(|card| card.nvlinks.iter().flatten())
        .filter_map(|link| link.version)
        .map(NvLinkVersion::megabytes_per_second)
        .max()
        // Only ever compared with PCIe, which every generation exceeds or equals.
        .unwrap_or(NvLinkVersion::V2_0.megabytes_per_second())
}
