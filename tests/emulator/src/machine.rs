//! One emulated machine: its fixed properties.

pub mod build;
pub mod identity;
pub mod pci_tree;

use serde::{Deserialize, Serialize};

use crate::hardware::MigModel;
use crate::hardware::board::Architecture;

pub use self::build::{BuildError, Options};
pub use crate::hardware::board::Board;
pub use crate::hardware::topology::{Level, PciAddress};

/// One emulated machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Hardware name given at creation.
    pub hardware: String,
    /// Its usual name.
    pub product: String,
    /// Makes this machine's UUIDs and serial numbers differ from another's.
    pub seed: String,
    /// The driver.
    pub driver: Driver,
    /// Cards in NVML's order.
    pub cards: Vec<Card>,
    /// `levels[i][j]`: where the PCIe paths of cards `i` and `j` meet.
    pub levels: Vec<Vec<Level>>,
    /// NUMA nodes with CPUs, by id; empty where unknown.
    pub numa_nodes: Vec<NumaNode>,
    /// NVLink, where the machine has any.
    pub nvlink: Option<NvLink>,
    /// Indexes of cards whose slots were empty when a process opened the machine: they do not exist for this process.
    #[serde(skip)]
    pub empty_slots: Vec<u32>,
}

/// The driver of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Driver {
    /// Such as `580.105.08`.
    pub version: String,
    /// CUDA version, `major.minor`.
    pub cuda_version: String,
}

/// A NUMA node with CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNode {
    /// Its id.
    pub id: u32,
    /// Its CPUs, as the kernel writes them: `0-55,112-167`.
    pub cpus: String,
}

/// NVLink of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvLink {
    /// Generation, 1 to 5.
    pub generation: u32,
    /// Speed of one link in one direction, MB/s, where known.
    pub megabytes_per_second: Option<u32>,
    /// PCI ids of the NVSwitches, where visible to the host.
    pub switch_pci_id: Option<crate::hardware::board::PciId>,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// Position in NVML's order.
    pub index: u32,
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Serial number of the board.
    pub serial: String,
    /// Its PCI address.
    pub pci: PciAddress,
    /// Bridges from the root port down to the card.
    pub bridges: Vec<PciAddress>,
    /// Root complex, such as `pci0000:44`.
    pub pcie_root: String,
    /// NUMA node, where known.
    pub numa_node: Option<u32>,
    /// NUMA node of the card's own memory, if also memory of the host.
    pub memory_numa_node: Option<u32>,
    /// CPUs near the card, where known.
    pub cpus: Option<String>,
    /// Place on the baseboard, where known.
    pub module_id: Option<u32>,
    /// NVLinks by number.
    pub links: Vec<Link>,
    /// NVLink fabric of the card, if registered with one.
    pub fabric: Option<Fabric>,
    /// The card's kind.
    pub board: Board,
    /// Its possible partitions, if any.
    pub mig: Option<MigModel>,
}

/// One NVLink of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Its other end; a link without one is inactive.
    pub remote: Option<Remote>,
}

/// The other end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Remote {
    /// Another card.
    Card {
        /// Its index.
        index: u32,
    },
    /// An NVSwitch.
    Switch {
        /// PCI address, if visible to the host.
        pci: Option<PciAddress>,
    },
}

/// How a card takes part in an NVLink fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fabric {
    /// Cluster UUID; all zeros in a machine with a fabric of its own.
    pub cluster_uuid: String,
    /// Clique.
    pub clique: u32,
    /// Health mask, where the driver reports one.
    pub health_mask: Option<u32>,
    /// Health summary, where the driver reports one.
    pub health_summary: Option<u8>,
}

impl Card {
    /// Whether ids of GPU instances count the upper half of the card first. Captures of 8-unit Ampere boards show
    /// both orders; here they alternate from card to card, so that no client depends on either order.
    pub fn gpu_instance_ids_swapped(&self) -> bool {
        let eight_units = self.mig.as_ref().is_some_and(|model| model.memory_slices == 8);
        self.board.architecture == Architecture::Ampere && eight_units && self.index % 2 == 1
    }
}

impl Machine {
    /// The present cards, in NVML's order.
    pub fn present(&self) -> impl Iterator<Item = &Card> {
        self.cards.iter().filter(|card| !self.empty_slots.contains(&card.index))
    }

    /// Number of NVLinks directly between two cards, or of links to NVSwitches if both have them.
    pub fn links_between(&self, one: usize, other: usize) -> usize {
        let (Some(one_card), Some(other_card)) = (self.cards.get(one), self.cards.get(other)) else {
            return 0;
        };
        if one == other {
            return 0;
        }
        let to_switches = |card: &Card| {
            card.links.iter().filter(|link| matches!(link.remote, Some(Remote::Switch { .. }))).count()
        };
        let direct = one_card
            .links
            .iter()
            .filter(|link| matches!(link.remote, Some(Remote::Card { index }) if index as usize == other))
            .count();
        direct + to_switches(one_card).min(to_switches(other_card))
    }
}
