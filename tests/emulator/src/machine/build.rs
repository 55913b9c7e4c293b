//! Builds a machine from its name and options.

use std::collections::BTreeMap;

use super::pci_tree::{self, Input};
use super::{Card, Driver, Fabric, Link, Machine, NumaNode, NvLink, Remote, identity};
use crate::hardware::topology::{Connection, Level, PciAddress};
use crate::hardware::{self, Board, FabricFacts, FactsError, Hardware, Topology};

/// Most cards of one machine: four times the maximum of a real node, so that limits can be tested.
pub const MOST_CARDS: usize = 64;

/// Options of a new machine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the machine.
    pub hardware: String,
    /// A board in place of the machine's own.
    pub board: Option<String>,
    /// Another topology than the machine's own.
    pub topology: Option<String>,
    /// Another number of cards than the topology's: the first ones, or, where there are more, the whole pattern again in
    /// the next PCI domain.
    pub cards: Option<usize>,
    /// Makes UUIDs and serial numbers differ between machines.
    pub seed: String,
    /// Another driver version than the machine's own.
    pub driver_version: Option<String>,
    /// Another CUDA version than the driver's own, `major.minor`.
    pub cuda_version: Option<String>,
    /// Cluster UUID and clique in place of the machine's own.
    pub cluster_uuid: Option<String>,
    /// Clique in place of the machine's own.
    pub clique: Option<u32>,
}

/// Why a machine cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A data file is unknown or wrong.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// More cards than a machine may have, or none.
    #[error("a machine has between 1 and {MOST_CARDS} cards, not {0}")]
    CardCount(usize),
    /// The PCI addresses of the topology leave no buses for its bridges.
    #[error("the PCI addresses of topology {0} leave no room for its bridges; use another topology")]
    NoRoomForBridges(String),
    /// A version has a form not used by NVIDIA.
    #[error("{what} {value:?} is not of the form {form}")]
    Version {
        /// The kind of version.
        what: &'static str,
        /// The given text.
        value: String,
        /// The expected form.
        form: &'static str,
    },
    /// The CUDA version of this driver is unknown.
    #[error("no known CUDA version belongs to driver {0}; give it with --cuda-version")]
    UnknownDriver(String),
    /// The cluster UUID is not one.
    #[error("{0:?} is not a UUID such as 6f9619ff-8b86-d011-b42d-00c04fc964ff")]
    ClusterUuid(String),
    /// The machine has no fabric, so neither a cluster nor a clique.
    #[error(
        "the cards of {0} are not registered with an NVLink fabric, so it has no cluster UUID and no clique"
    )]
    NoFabric(String),
}

/// CUDA version of each driver branch (CUDA toolkit release notes, "CUDA toolkit and corresponding driver versions").
const CUDA_OF_DRIVER: &[(u32, &str)] = &[
    (450, "11.0"),
    (455, "11.1"),
    (460, "11.2"),
    (465, "11.3"),
    (470, "11.4"),
    (495, "11.5"),
    (510, "11.6"),
    (515, "11.7"),
    (520, "11.8"),
    (525, "12.0"),
    (530, "12.1"),
    (535, "12.2"),
    (545, "12.3"),
    (550, "12.4"),
    (555, "12.5"),
    (560, "12.6"),
    (565, "12.7"),
    (570, "12.8"),
    (575, "12.9"),
    (580, "13.0"),
    (590, "13.1"),
    (595, "13.2"),
];

/// Builds the machine.
///
/// # Errors
/// When a name is unknown, or the options do not fit together.
pub fn build(options: &Options) -> Result<Machine, BuildError> {
    let name = hardware::machine_name(&options.hardware)?;
    let (facts, _) = hardware::hardware(name)?;
    let (board, _) = hardware::board(options.board.as_deref().unwrap_or(&facts.board))?;
    let topology_name = options.topology.as_deref().unwrap_or(&facts.topology);
    let (topology, _) = hardware::topology(topology_name)?;
    let count = options.cards.unwrap_or(topology.cards());
    if !(1..=MOST_CARDS).contains(&count) {
        return Err(BuildError::CardCount(count));
    }
    let driver = driver(options, &facts)?;
    let template = |card: usize| (card % topology.cards(), (card / topology.cards()) as u32);
    let levels: Vec<Vec<Level>> = (0..count)
        .map(|one| (0..count).map(|other| level(&topology, template(one), template(other))).collect())
        .collect();
    let addresses: Vec<PciAddress> = (0..count)
        .map(|card| {
            let (position, block) = template(card);
            let address = topology.pci_addresses[position];
            PciAddress { domain: address.domain + block * domains(&topology), ..address }
        })
        .collect();
    let inputs: Vec<Input> = (0..count)
        .map(|card| Input {
            pci: addresses[card],
            host_bridge_bus: host_bridge_bus(&topology, template(card).0),
        })
        .collect();
    let places = pci_tree::place(&inputs, &levels)
        .ok_or_else(|| BuildError::NoRoomForBridges(topology_name.to_owned()))?;
    let fabric = fabric(options, &facts)?;
    let mig = match &board.mig_model {
        Some(name) => Some(hardware::mig_model(name)?.0.complete(board.memory_total_mib)),
        None => None,
    };
    let minors = minors(&topology, count);
    let links = links(&topology, &board, count);
    let cards = places
        .into_iter()
        .zip(links)
        .enumerate()
        .map(|(card, (place, links))| {
            let (position, _) = template(card);
            let words = [options.seed.as_str(), name, &card.to_string()];
            Card {
                index: card as u32,
                minor: minors[card],
                uuid: format!("GPU-{}", identity::uuid(&words)),
                serial: identity::serial(&words),
                pci: addresses[card],
                pcie_root: format!("pci{:04x}:{:02x}", addresses[card].domain, place.host_bridge_bus),
                bridges: place.bridges,
                numa_node: topology.numa_nodes.as_ref().map(|nodes| nodes[position]),
                memory_numa_node: topology.gpu_memory_numa_nodes.as_ref().map(|nodes| nodes[position]),
                cpus: topology.cpu_affinity.as_ref().map(|cpus| cpus[position].clone()),
                module_id: topology.module_ids.as_ref().map(|ids| ids[position]),
                links,
                fabric: fabric.clone(),
                board: board.clone(),
                mig: mig.clone(),
            }
        })
        .collect();
    Ok(Machine {
        hardware: name.to_owned(),
        product: facts.product,
        seed: options.seed.clone(),
        driver,
        cards,
        levels,
        numa_nodes: numa_nodes(&topology),
        nvlink: (topology.links_of_a_card() > 0)
            .then(|| {
                Some(NvLink {
                    generation: topology.nvlink_version.or_else(|| board.architecture.nvlink_generation())?,
                    megabytes_per_second: topology.nvlink_megabytes_per_second,
                    switch_pci_id: topology.switch_pci_id,
                })
            })
            .flatten(),
        empty_slots: Vec::new(),
    })
}

/// Cards of one block meet at the topology's levels; cards of different blocks share neither bridge nor board.
fn level(topology: &Topology, one: (usize, u32), other: (usize, u32)) -> Level {
    let near = topology.level(one.0, other.0);
    if one.1 == other.1 {
        return near;
    }
    let same_node =
        one.0 == other.0 || topology.numa_nodes.as_ref().is_some_and(|nodes| nodes[one.0] == nodes[other.0]);
    if same_node && near != Level::System { Level::Node } else { Level::System }
}

/// Number of PCI domains of a topology; the next block of cards starts after them.
fn domains(topology: &Topology) -> u32 {
    let domains = || topology.pci_addresses.iter().map(|address| address.domain);
    domains().max().unwrap_or(0) - domains().min().unwrap_or(0) + 1
}

fn host_bridge_bus(topology: &Topology, card: usize) -> Option<u8> {
    let root = topology.pcie_roots.as_ref()?.get(card)?;
    u8::from_str_radix(root.rsplit_once(':')?.1, 16).ok()
}

/// Links of every card. Links of one pair are numbered one after the other, lowest peer first: captures give their
/// number, not their order.
fn links(topology: &Topology, board: &Board, count: usize) -> Vec<Vec<Link>> {
    let total = topology.links_of_a_card() as usize;
    if board.architecture.nvlink_generation().is_none() {
        return vec![Vec::new(); count];
    }
    (0..count)
        .map(|card| {
            let position = card % topology.cards();
            let block = card - position;
            let mut links = Vec::new();
            if topology.switched() {
                let switches = topology.switch_addresses.as_deref().unwrap_or_default();
                links.extend((0..total).map(|link| Link {
                    remote: Some(Remote::Switch {
                        pci: (!switches.is_empty()).then(|| switches[link * switches.len() / total]),
                    }),
                }));
            } else {
                for (other, connection) in topology.matrix[position].iter().enumerate() {
                    if let Connection::NvLinks(between) = connection {
                        let peer = block + other;
                        let remote = (peer < count).then_some(Remote::Card { index: peer as u32 });
                        links.extend((0..*between).map(|_| Link { remote }));
                    }
                }
                links.resize(total, Link { remote: None });
            }
            links
        })
        .collect()
}

/// Minor numbers of the first `count` cards: in the driver's order of discovery, without gaps.
fn minors(topology: &Topology, count: usize) -> Vec<u32> {
    let key = |card: usize| {
        let position = card % topology.cards();
        (card - position, topology.minors.as_ref().map_or(position as u32, |minors| minors[position]))
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|card| key(*card));
    let mut minors = vec![0; count];
    for (minor, card) in order.into_iter().enumerate() {
        minors[card] = minor as u32;
    }
    minors
}

fn numa_nodes(topology: &Topology) -> Vec<NumaNode> {
    let (Some(nodes), Some(cpus)) = (&topology.numa_nodes, &topology.cpu_affinity) else { return Vec::new() };
    let nodes: BTreeMap<u32, &String> = nodes.iter().copied().zip(cpus).collect();
    nodes.into_iter().map(|(id, cpus)| NumaNode { id, cpus: cpus.clone() }).collect()
}

fn fabric(options: &Options, facts: &Hardware) -> Result<Option<Fabric>, BuildError> {
    let Some(FabricFacts { multi_node, clique, health_mask, health_summary }) = facts.fabric.clone() else {
        return if options.cluster_uuid.is_some() || options.clique.is_some() {
            Err(BuildError::NoFabric(options.hardware.clone()))
        } else {
            Ok(None)
        };
    };
    let cluster_uuid = match &options.cluster_uuid {
        Some(uuid) => {
            let digits: String = uuid.chars().filter(|character| *character != '-').collect();
            if digits.len() != 32 || uuid.len() != 36 || u128::from_str_radix(&digits, 16).is_err() {
                return Err(BuildError::ClusterUuid(uuid.clone()));
            }
            uuid.to_ascii_lowercase()
        }
        None if multi_node => identity::uuid(&["cluster", &options.seed]),
        None => "00000000-0000-0000-0000-000000000000".to_owned(),
    };
    Ok(Some(Fabric { cluster_uuid, clique: options.clique.unwrap_or(clique), health_mask, health_summary }))
}

fn driver(options: &Options, facts: &Hardware) -> Result<Driver, BuildError> {
    let version = options.driver_version.as_ref().unwrap_or(&facts.driver_version);
    let parts: Vec<&str> = version.split('.').collect();
    let numbers = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !(2..=3).contains(&parts.len()) || !numbers {
        return Err(BuildError::Version {
            what: "driver version",
            value: version.clone(),
            form: "580.105.08",
        });
    }
    let cuda_version = match (&options.cuda_version, &options.driver_version) {
        (Some(cuda), _) => cuda.clone(),
        (None, None) => facts.cuda_version.clone(),
        (None, Some(version)) => {
            let branch: Option<u32> = parts[0].parse().ok();
            CUDA_OF_DRIVER
                .iter()
                .rfind(|(known, _)| Some(*known) == branch)
                .map(|(_, cuda)| (*cuda).to_owned())
                .ok_or_else(|| BuildError::UnknownDriver(version.clone()))?
        }
    };
    if cuda_number(&cuda_version).is_none() {
        return Err(BuildError::Version { what: "CUDA version", value: cuda_version, form: "13.0" });
    }
    Ok(Driver { version: version.clone(), cuda_version })
}

/// NVML's number of a `major.minor` version: 13000 for 13.0.
pub fn cuda_number(version: &str) -> Option<i32> {
    let (major, minor) = version.split_once('.')?;
    let (major, minor): (u16, u16) = (major.parse().ok()?, minor.parse().ok()?);
    (minor < 100).then(|| i32::from(major) * 1000 + i32::from(minor) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(hardware: &str) -> Options {
        Options { hardware: hardware.into(), seed: "seed".into(), ..Options::default() }
    }

    #[test]
    fn every_machine_can_be_built_with_every_number_of_cards() {
        for name in hardware::machine_names() {
            for cards in 1..=MOST_CARDS {
                let machine = build(&Options { cards: Some(cards), ..options(name) }).expect("it builds");
                assert_eq!(machine.cards.len(), cards, "{name}");
                let mut uuids: Vec<&str> = machine.cards.iter().map(|card| card.uuid.as_str()).collect();
                uuids.sort_unstable();
                uuids.dedup();
                assert_eq!(uuids.len(), cards, "{name}: UUIDs are distinct");
                let mut addresses: Vec<PciAddress> = machine.cards.iter().map(|card| card.pci).collect();
                addresses.sort_unstable();
                addresses.dedup();
                assert_eq!(addresses.len(), cards, "{name}: PCI addresses are distinct");
            }
        }
    }

    #[test]
    fn links_are_as_many_as_the_captures_show() {
        let machine = build(&options("dgx-1v")).expect("a DGX-1V");
        assert_eq!(machine.links_between(0, 3), 2);
        assert_eq!(machine.links_between(0, 1), 1);
        assert_eq!(machine.links_between(0, 5), 0);
        assert!(machine.cards.iter().all(|card| card.links.len() == 6));
        let machine = build(&options("hgx-h100-80gb")).expect("an HGX H100");
        assert_eq!(machine.links_between(0, 7), 18);
        let machine = build(&options("l40s-x8")).expect("8 L40S");
        assert!(machine.cards.iter().all(|card| card.links.is_empty()));
    }

    #[test]
    fn two_seeds_are_two_machines() {
        let one = build(&options("t4")).expect("a T4");
        let other = build(&Options { seed: "other".into(), ..options("t4") }).expect("another T4");
        assert_ne!(one.cards[0].uuid, other.cards[0].uuid);
        assert_eq!(one, build(&options("t4")).expect("the same T4 again"));
    }

    #[test]
    fn impossible_machines_are_refused() {
        for cards in [0, 65] {
            assert!(matches!(
                build(&Options { cards: Some(cards), ..options("t4") }),
                Err(BuildError::CardCount(_))
            ));
        }
        for version in ["", "580", "580.a.1", "580.105.08.1"] {
            let refused = build(&Options { driver_version: Some(version.into()), ..options("t4") });
            assert!(matches!(refused, Err(BuildError::Version { .. })), "{version:?}");
        }
        let refused = build(&Options { driver_version: Some("333.1".into()), ..options("t4") });
        assert!(matches!(refused, Err(BuildError::UnknownDriver(_))));
    }

    #[test]
    fn a_driver_brings_its_cuda_version() {
        let machine =
            build(&Options { driver_version: Some("535.183.06".into()), ..options("t4") }).expect("a T4");
        assert_eq!(machine.driver.cuda_version, "12.2");
        assert_eq!(cuda_number("12.2"), Some(12020));
    }
}
