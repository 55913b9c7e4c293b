//! How the cards of a machine are connected.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the cards of a machine are connected; card `i` is row `i` of each table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// Where the topology is found.
    pub product: String,
    /// Cells of `nvidia-smi topo -m`.
    pub matrix: Vec<Vec<Connection>>,
    /// The same without NVLink (`nvidia-smi topo -mp`), where captured.
    pub pcie_matrix: Option<Vec<Vec<Connection>>>,
    /// PCI addresses of the cards.
    pub pci_addresses: Vec<PciAddress>,
    /// PCIe root complex of each card, such as `pci0000:44`.
    pub pcie_roots: Option<Vec<String>>,
    /// NUMA node of each card.
    pub numa_nodes: Option<Vec<u32>>,
    /// CPUs near each card, as the kernel writes CPU lists.
    pub cpu_affinity: Option<Vec<String>>,
    /// NVLink generation.
    pub nvlink_version: Option<u32>,
    /// NVLinks of one card.
    pub links_per_card: Option<u32>,
    /// Speed of one NVLink in one direction, MB/s.
    pub nvlink_megabytes_per_second: Option<u32>,
    /// PCI addresses of the NVSwitches visible to the host.
    pub switch_addresses: Option<Vec<PciAddress>>,
    /// PCI ids of the NVSwitches.
    pub switch_pci_id: Option<super::board::PciId>,
    /// `N` of `/dev/nvidiaN` of each card, where different from its index.
    pub minors: Option<Vec<u32>>,
    /// NUMA node of each card's own memory, on machines where card memory is memory of the host.
    pub gpu_memory_numa_nodes: Option<Vec<u32>>,
    /// Place of each card on its baseboard (`nvmlDeviceGetModuleId`).
    pub module_ids: Option<Vec<u32>>,
}

/// A PCI address; every card is function 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, device) = rest.strip_suffix(".0")?.split_once(':')?;
            let hexadecimal = |digits: &str| u32::from_str_radix(digits, 16).ok();
            Some(PciAddress {
                domain: hexadecimal(domain)?,
                bus: hexadecimal(bus)?.try_into().ok()?,
                device: hexadecimal(device)?.try_into().ok().filter(|device| *device < 32)?,
            })
        };
        parse().ok_or_else(|| format!("{text:?} is not a PCI address such as 0000:3b:00.0"))
    }
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

/// A cell of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Connection {
    /// The card itself.
    Itself,
    /// Number of NVLinks.
    NvLinks(u32),
    /// No NVLink: the common level of the two in the PCIe tree.
    Level(Level),
}

/// `nvmlGpuTopologyLevel_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Same board.
    #[serde(rename = "INT")]
    Internal,
    /// One PCIe switch.
    #[serde(rename = "PIX")]
    Single,
    /// Several PCIe switches below one host bridge.
    #[serde(rename = "PXB")]
    Multiple,
    /// One host bridge.
    #[serde(rename = "PHB")]
    HostBridge,
    /// One NUMA node.
    #[serde(rename = "NODE")]
    Node,
    /// The machine.
    #[serde(rename = "SYS")]
    System,
}

impl Level {
    /// `nvmlGpuTopologyLevel_t`.
    pub fn nvml(self) -> u32 {
        match self {
            Level::Internal => 0,
            Level::Single => 10,
            Level::Multiple => 20,
            Level::HostBridge => 30,
            Level::Node => 40,
            Level::System => 50,
        }
    }
}

impl TryFrom<String> for Connection {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(match text.as_str() {
            "X" => Connection::Itself,
            "PIX" => Connection::Level(Level::Single),
            "PXB" => Connection::Level(Level::Multiple),
            "PHB" => Connection::Level(Level::HostBridge),
            "NODE" => Connection::Level(Level::Node),
            "SYS" => Connection::Level(Level::System),
            _ => text
                .strip_prefix("NV")
                .and_then(|links| links.parse().ok())
                .map(Connection::NvLinks)
                .ok_or_else(|| format!("{text:?} is not a cell of nvidia-smi topo -m"))?,
        })
    }
}

impl Topology {
    /// Cards of the machine.
    pub fn cards(&self) -> usize {
        self.matrix.len()
    }

    /// Whether the cards reach each other through NVSwitches: then every pair has all the links of a card.
    pub fn switched(&self) -> bool {
        let links: u32 = self.matrix.first().map_or(0, |row| {
            row.iter().map(|cell| if let Connection::NvLinks(links) = cell { *links } else { 0 }).sum()
        });
        links > self.links_of_a_card()
    }

    /// NVLinks of one card: as captured, else the most on one of its connections.
    pub fn links_of_a_card(&self) -> u32 {
        self.links_per_card.unwrap_or_else(|| {
            let sum = |row: &Vec<Connection>| -> u32 {
                row.iter().map(|cell| if let Connection::NvLinks(links) = cell { *links } else { 0 }).sum()
            };
            let all_pairs_alike = self.cards() > 2
                && self.matrix.iter().flatten().all(|cell| match cell {
                    Connection::Itself => true,
                    Connection::NvLinks(_) => true,
                    Connection::Level(_) => false,
                });
            if all_pairs_alike {
                self.matrix
                    .iter()
                    .flatten()
                    .map(|cell| if let Connection::NvLinks(links) = cell { *links } else { 0 })
                    .max()
                    .unwrap_or(0)
            } else {
                self.matrix.iter().map(sum).max().unwrap_or(0)
            }
        })
    }

    /// The common level of two cards in the PCIe tree.
    ///
    /// As captured, where a capture without NVLink exists. Else cards of one root complex are taken to meet at its
    /// switches, cards of one NUMA node at the node, as `nvidia-smi topo -m` shows such machines.
    pub fn level(&self, one: usize, other: usize) -> Level {
        if one == other {
            return Level::Internal;
        }
        let cell = self.pcie_matrix.as_ref().unwrap_or(&self.matrix)[one][other];
        if let Connection::Level(level) = cell {
            return level;
        }
        let same = |values: Option<bool>| values.unwrap_or(false);
        if same(self.pcie_roots.as_ref().map(|roots| roots[one] == roots[other])) {
            Level::Multiple
        } else if same(self.numa_nodes.as_ref().map(|nodes| nodes[one] == nodes[other])) {
            Level::Node
        } else {
            Level::System
        }
    }

    /// The contradiction, if any.
    pub(super) fn check(&self) -> Result<(), String> {
        let cards = self.cards();
        let square = |table: &Vec<Vec<Connection>>| {
            table.len() == cards
                && table.iter().enumerate().all(|(one, row)| {
                    row.len() == cards
                        && row.iter().enumerate().all(|(other, cell)| {
                            *cell == table[other][one] && (one == other) == (*cell == Connection::Itself)
                        })
                })
        };
        if !square(&self.matrix) || !self.pcie_matrix.as_ref().is_none_or(square) {
            return Err("a matrix is not square and symmetric".into());
        }
        let lengths = [
            ("pciAddresses", Some(self.pci_addresses.len())),
            ("pcieRoots", self.pcie_roots.as_ref().map(Vec::len)),
            ("numaNodes", self.numa_nodes.as_ref().map(Vec::len)),
            ("cpuAffinity", self.cpu_affinity.as_ref().map(Vec::len)),
            ("minors", self.minors.as_ref().map(Vec::len)),
            ("gpuMemoryNumaNodes", self.gpu_memory_numa_nodes.as_ref().map(Vec::len)),
            ("moduleIds", self.module_ids.as_ref().map(Vec::len)),
        ];
        for (name, length) in lengths {
            if length.is_some_and(|length| length != cards) {
                return Err(format!("{name} must have one entry for each of the {cards} cards"));
            }
        }
        let mut addresses = self.pci_addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() != cards {
            return Err("two cards have one PCI address".into());
        }
        Ok(())
    }
}
