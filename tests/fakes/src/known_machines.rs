//! The machines of `data/topologies.txt`, as facts reported by their driver.

use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, CommonAncestor, NvLink, NvLinkRemote, NvLinkVersion, Pair};

/// One machine of the file, in its own terms.
#[derive(Clone, Debug)]
pub struct KnownMachine {
    /// Its name in the file.
    pub name: String,
    /// MB/s of one NVLink in one direction.
    pub link_rate: u32,
    /// Whether its links go to NVSwitches.
    pub switched: bool,
    /// The NUMA node of each card.
    pub numa: Vec<u32>,
    /// Number of NVLinks between each pair of cards.
    pub links: Vec<Vec<u32>>,
    /// PCIe closeness of each pair of cards: from 60 on one board to 10 across sockets.
    pub closeness: Vec<Vec<u32>>,
}

/// All machines of the file.
pub fn all() -> Vec<KnownMachine> {
    let mut lines = include_str!("../../../crates/base/inventory/tests/data/topologies.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut machines = Vec::new();
    while let Some(header) = lines.next() {
        let words: Vec<&str> = header.split_whitespace().collect();
        let count: usize = words[2].parse().unwrap();
        let mut row = || -> Vec<u32> { numbers(lines.next().unwrap()) };
        let numa = row();
        let _roots = lines.next().unwrap();
        let mut row = || -> Vec<u32> { numbers(lines.next().unwrap()) };
        machines.push(KnownMachine {
            name: words[1].to_owned(),
            link_rate: (words[3].parse::<f64>().unwrap() * 1000.0).round() as u32,
            switched: words[4] == "1",
            numa,
            links: (0..count).map(|_| row()).collect(),
            closeness: (0..count).map(|_| row()).collect(),
        });
    }
    assert_eq!(machines.len(), 20);
    machines
}

/// The machine of this name.
pub fn named(name: &str) -> KnownMachine {
    all().into_iter().find(|machine| machine.name == name).unwrap()
}

/// The numbers behind the first word of a line.
fn numbers(line: &str) -> Vec<u32> {
    line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect()
}

/// PCI address of the card at `position`.
pub fn address(position: usize) -> PciBusId {
    PciBusId::new(0, 0x10 + u8::try_from(position).unwrap(), 0, 0).unwrap()
}

impl KnownMachine {
    /// The facts: card `position` is at [`address`]`(position)`, and cards are enumerated in this order.
    pub fn machine(&self) -> Machine {
        let mut machine = Machine::default();
        for (position, (&node, links)) in self.numa.iter().zip(&self.links).enumerate() {
            let mut card = Card::new(address(position));
            card.numa_node = Some(node);
            card.nvlinks = Some(self.nvlinks(position, links));
            machine.cards.push(card);
            for other in 0..position {
                machine.pairs.insert(address(position), address(other), self.pair(position, other));
            }
        }
        machine
    }

    fn nvlinks(&self, position: usize, links: &[u32]) -> Vec<NvLink> {
        let version = self.version();
        if self.switched {
            let own = links.iter().copied().max().unwrap();
            return (0..own).map(|_| NvLink { remote: NvLinkRemote::Switch, version }).collect();
        }
        let to_each = links.iter().enumerate().filter(|&(other, _)| other != position);
        to_each
            .flat_map(|(other, &count)| (0..count).map(move |_| NvLinkRemote::Gpu(address(other))))
            .map(|remote| NvLink { remote, version })
            .collect()
    }

    fn version(&self) -> Option<NvLinkVersion> {
        let version = |number: &u32| NvLinkVersion::from_nvml(*number).unwrap().megabytes_per_second();
        let number = (1..=7).find(|number| version(number) == self.link_rate);
        assert!(
            number.is_some() || self.link_rate == 0,
            "{}: no NVLink has {} MB/s",
            self.name,
            self.link_rate
        );
        number.and_then(NvLinkVersion::from_nvml)
    }

    fn pair(&self, one: usize, other: usize) -> Pair {
        let ancestor = match self.closeness[one][other] {
            60 => CommonAncestor::Internal,
            50 => CommonAncestor::SingleSwitch,
            40 => CommonAncestor::MultipleSwitches,
            30 => CommonAncestor::HostBridge,
            20 => CommonAncestor::Node,
            10 => CommonAncestor::System,
            closeness => panic!("{}: closeness {closeness}", self.name),
        };
        Pair { nvlink_peer_access: Some(self.links[one][other] > 0), common_ancestor: Some(ancestor) }
    }
}
