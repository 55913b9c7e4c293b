use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;

use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::{Card, FabricState, Health, Pairs};
use tessera_nvml::{Nvml, NvmlError, PciAddress};

use super::facts::{self, pci_bus_id};
use super::health::HealthBook;
use super::problem::{Problem, Problems, Told};
use super::sysfs::Sysfs;

/// What is known of this machine's cards, from all readings of this process's life.
#[derive(Debug)]
pub struct Discovery {
    sysfs: Sysfs,
    seen: bool,
    driver_version: Option<String>,
    cuda_driver_version: Option<u32>,
    cards: BTreeMap<PciBusId, Card>,
    pairs: Pairs,
    returned: Vec<PciBusId>,
    problems: Vec<Problem>,
    told: Told,
}

/// What one card answered.
struct Answer {
    pci: PciBusId,
    gone: bool,
    card: Option<Card>,
    problems: Problems,
}

impl Discovery {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(sysfs_root: PathBuf) -> Self {
        Discovery {
            sysfs: Sysfs::new(sysfs_root),
            seen: false,
            driver_version: None,
            cuda_driver_version: None,
            cards: BTreeMap::new(),
            pairs: Pairs::default(),
            returned: Vec::new(),
            problems: Vec::new(),
            told: Told::default(),
        }
    }

    /// Reads everything once, every card on a thread of its own; blocks as long as the slowest. For one look at a
    /// machine: [`run`](super::run) keeps looking.
    pub fn read_once(&mut self, nvml: &dyn Nvml) {
        self.read(nvml, &HealthBook::default());
    }

    /// As [`Discovery::read_once`], with what the driver's events said.
    pub(super) fn read(&mut self, nvml: &dyn Nvml, health: &HealthBook) {
        let mut problems = Problems::default();
        self.read_driver(nvml, &mut problems);
        match nvml.addresses() {
            Ok(addresses) => self.read_cards(nvml, addresses, health, &mut problems),
            Err(error) => problems.add(None, "cards", error),
        }
        self.finish(problems);
    }

    /// The driver went away: every card is lost until it is back.
    pub(super) fn driver_gone(&mut self) {
        for card in self.cards.values_mut() {
            card.health = Health::Lost;
        }
        self.returned.clear();
        self.finish(Problems::default());
    }

    /// The machine; `None` until cards were seen once.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        self.seen.then(|| Machine {
            driver_version: self.driver_version.clone(),
            cuda_driver_version: self.cuda_driver_version,
            cards: self.cards.values().cloned().collect(),
            pairs: self.pairs.clone(),
        })
    }

    /// What the last reading missed.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Cards that were lost before the last reading and answered in it.
    pub(super) fn returned(&self) -> &[PciBusId] {
        &self.returned
    }

    /// Nothing is missing that may come by itself.
    pub(super) fn is_settled(&self) -> bool {
        let registering = |card: &Card| {
            card.fabric.as_ref().is_some_and(|fabric| {
                matches!(fabric.state, FabricState::NotStarted | FabricState::InProgress)
            })
        };
        self.seen && self.problems.is_empty() && !self.cards.values().any(registering)
    }

    fn finish(&mut self, problems: Problems) {
        self.problems = problems.into_vec();
        self.told.tell(&self.problems);
    }

    fn read_driver(&mut self, nvml: &dyn Nvml, problems: &mut Problems) {
        let version = nvml.driver_version().map(Some);
        self.driver_version = problems.take(None, "driverVersion", version, self.driver_version.take());
        let cuda = nvml.cuda_version().map(|version| Some(version.number()));
        self.cuda_driver_version = problems.take(None, "cudaDriverVersion", cuda, self.cuda_driver_version);
    }

    fn read_cards(
        &mut self,
        nvml: &dyn Nvml,
        addresses: Vec<Result<PciAddress, NvmlError>>,
        health: &HealthBook,
        problems: &mut Problems,
    ) {
        let mut present = Vec::new();
        for (index, address) in addresses.into_iter().enumerate() {
            match address.map(|address| (address, pci_bus_id(address))) {
                Ok((address, Some(pci))) => present.push((address, pci)),
                Ok((_, None)) => {}
                Err(error) => {
                    problems.add(None, "cards", format!("card with index {index} is left out: {error}"))
                }
            }
        }
        self.seen |= !present.is_empty();
        let answers = self.ask(nvml, &present);
        let mut live = Vec::new();
        self.returned.clear();
        for Answer { pci, gone, card, problems: own } in answers {
            problems.append(own);
            if gone {
                problems.add(Some(pci), "card", "it fell off the bus or needs a reset");
            }
            let Some(mut card) = card.filter(|_| !gone) else { continue };
            if self.cards.get(&pci).is_some_and(|known| known.health == Health::Lost) {
                self.returned.push(pci);
            }
            card.health = health.of(pci);
            self.cards.insert(pci, card);
            live.push(pci);
        }
        for (pci, card) in &mut self.cards {
            if !live.contains(pci) {
                card.health = Health::Lost;
            }
        }
        present.retain(|(_, pci)| live.contains(pci));
        self.read_pairs(nvml, &present, problems);
    }

    fn ask(&self, nvml: &dyn Nvml, present: &[(PciAddress, PciBusId)]) -> Vec<Answer> {
        side_by_side(present, |(address, pci)| {
            let known = self.cards.get(&pci);
            let mut problems = Problems::default();
            let (gone, card) = match nvml.card(address) {
                Ok(read) if is_gone(&read) => (true, None),
                Ok(read) => (false, facts::card(pci, read, &self.sysfs, known, &mut problems)),
                Err(error) if error.is_card_gone() => (true, None),
                Err(error) => {
                    problems.add(Some(pci), "card", error);
                    (false, known.cloned())
                }
            };
            Answer { pci, gone, card, problems }
        })
    }

    fn read_pairs(&mut self, nvml: &dyn Nvml, present: &[(PciAddress, PciBusId)], problems: &mut Problems) {
        let rows: Vec<usize> = (0..present.len()).collect();
        let answers = side_by_side(&rows, |row| {
            let (address, pci) = present[row];
            let mut own = Problems::default();
            let pairs: Vec<_> = present[row + 1..]
                .iter()
                .map(|&(other_address, other)| {
                    let known = self.pairs.get(pci, other);
                    (other, facts::pair(pci, other, nvml.pair(address, other_address), known, &mut own))
                })
                .collect();
            (pci, pairs, own)
        });
        for (pci, pairs, own) in answers {
            for (other, pair) in pairs {
                self.pairs.insert(pci, other, pair);
            }
            problems.append(own);
        }
    }
}

/// A card that falls off while it is read gives an error for everything from there on.
fn is_gone(card: &tessera_nvml::Card) -> bool {
    let gone = |error: Option<&NvmlError>| error.is_some_and(NvmlError::is_card_gone);
    gone(card.uuid.as_ref().err()) || gone(card.memory.as_ref().err()) || gone(card.fabric.as_ref().err())
}

/// Does the work for each of `all` on a thread of its own; answers in their order.
fn side_by_side<T: Copy + Send + Sync, A: Send>(all: &[T], work: impl Fn(T) -> A + Sync) -> Vec<A> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = all.iter().map(|&one| scope.spawn(move || work(one))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tessera_nvml::{ComputeCapability, CudaVersion, Event, Identity, Memory, MigMode, Pair};

    use super::*;

    /// A machine whose cards a test may break.
    #[derive(Default)]
    struct Fake {
        cards: Mutex<Vec<Result<tessera_nvml::Card, NvmlError>>>,
    }

    const LOST: u32 = 15;
    const UNKNOWN: u32 = 999;

    fn failed(function: &'static str, code: u32) -> NvmlError {
        NvmlError::Call { function, code, text: "Text".into() }
    }

    fn address(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0 }
    }

    fn pci(bus: u8) -> PciBusId {
        pci_bus_id(address(bus)).unwrap()
    }

    fn card(bus: u8) -> tessera_nvml::Card {
        tessera_nvml::Card {
            address: address(bus),
            index: Ok(0),
            minor: Ok(0),
            uuid: Ok(format!("GPU-{bus}")),
            name: Ok("NVIDIA H100 80GB HBM3".into()),
            brand: Ok(Some(tessera_nvml::Brand(14))),
            architecture: Ok(Some(tessera_nvml::Architecture(9))),
            compute_capability: Ok(Some(ComputeCapability { major: 9, minor: 0 })),
            memory: Ok(Some(Memory { total: 80 << 30, reserved: 0, used: 0, free: 80 << 30 })),
            mig: Ok(Some(MigMode { current: false, pending: false })),
            compute_mode: Ok(None),
            addressing_mode: Ok(None),
            memory_numa_node: Ok(None),
            cpu_affinity: Ok(None),
            links: Ok(Vec::new()),
            fabric: Ok(None),
        }
    }

    impl Fake {
        fn with(cards: impl IntoIterator<Item = tessera_nvml::Card>) -> Self {
            Fake { cards: Mutex::new(cards.into_iter().map(Ok).collect()) }
        }

        fn change(&self, position: usize, change: impl FnOnce(&mut tessera_nvml::Card)) {
            change(self.cards.lock().unwrap()[position].as_mut().unwrap());
        }
    }

    impl Nvml for Fake {
        fn identify(&self, _address: PciAddress) -> Result<Identity, NvmlError> {
            unreachable!("discovery does not identify")
        }

        fn driver_version(&self) -> Result<String, NvmlError> {
            Ok("580.95.05".into())
        }

        fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
            Ok(CudaVersion { major: 13, minor: 0 })
        }

        fn addresses(&self) -> Result<Vec<Result<PciAddress, NvmlError>>, NvmlError> {
            let cards = self.cards.lock().unwrap();
            Ok(cards
                .iter()
                .map(|card| card.as_ref().map(|card| card.address).map_err(NvmlError::clone))
                .collect())
        }

        fn card(&self, address: PciAddress) -> Result<tessera_nvml::Card, NvmlError> {
            let cards = self.cards.lock().unwrap();
            let found = cards.iter().flatten().find(|card| card.address == address);
            found.cloned().ok_or_else(|| failed("nvmlDeviceGetHandleByPciBusId_v2", 6))
        }

        fn pair(&self, _one: PciAddress, _other: PciAddress) -> Result<Pair, NvmlError> {
            Ok(Pair {
                common_ancestor: Ok(Some(tessera_nvml::CommonAncestor::Node)),
                nvlink: Ok(Some(tessera_nvml::PeerToPeer::NotSupported)),
            })
        }
    }

    /// Without a sysfs: what it misses is missed every time.
    fn discovery() -> Discovery {
        Discovery::new("/nonexistent/sysfs".into())
    }

    fn card_of(discovery: &Discovery, bus: u8) -> Option<Card> {
        discovery.machine().unwrap().cards.into_iter().find(|card| card.pci == pci(bus))
    }

    fn missed(discovery: &Discovery, bus: u8) -> Vec<&'static str> {
        discovery
            .problems()
            .iter()
            .filter(|problem| problem.card == Some(pci(bus)))
            .map(|problem| problem.fact)
            .collect()
    }

    #[test]
    fn a_failing_query_costs_one_fact_of_one_card() {
        let fake = Fake::with([card(1), card(2)]);
        fake.change(0, |card| card.name = Err(failed("nvmlDeviceGetName", UNKNOWN)));
        let mut discovery = discovery();
        discovery.read_once(&fake);

        let broken = card_of(&discovery, 1).unwrap();
        assert_eq!((broken.product_name, broken.health), (None, Health::Healthy));
        assert_eq!(broken.architecture.as_deref(), Some("Hopper"));
        assert_eq!(card_of(&discovery, 2).unwrap().product_name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(missed(&discovery, 1), ["productName", "pcieRoot", "numaNode"]);
        assert_eq!(missed(&discovery, 2), ["pcieRoot", "numaNode"]);
    }

    #[test]
    fn a_fact_once_read_does_not_flicker() {
        let fake = Fake::with([card(1)]);
        let mut discovery = discovery();
        discovery.read_once(&fake);
        let before = discovery.machine();
        fake.change(0, |card| {
            card.uuid = Err(failed("nvmlDeviceGetUUID", UNKNOWN));
            card.memory = Err(failed("nvmlDeviceGetMemoryInfo_v2", UNKNOWN));
            card.mig = Err(failed("nvmlDeviceGetMigMode", UNKNOWN));
            card.links = Err(failed("nvmlDeviceGetNvLinkState", UNKNOWN));
        });
        discovery.read_once(&fake);
        assert_eq!(discovery.machine(), before);
        assert_eq!(
            missed(&discovery, 1),
            ["uuid", "memory", "migCapable", "nvlinks", "pcieRoot", "numaNode"]
        );
    }

    #[test]
    fn a_card_that_never_said_who_it_is_is_left_out() {
        let fake = Fake::with([card(1), card(2)]);
        fake.change(0, |card| card.uuid = Err(failed("nvmlDeviceGetUUID", UNKNOWN)));
        let mut discovery = discovery();
        discovery.read_once(&fake);
        assert_eq!(card_of(&discovery, 1), None);
        assert!(card_of(&discovery, 2).is_some());
        assert_eq!(missed(&discovery, 1), ["uuid", "card"]);
    }

    #[test]
    fn a_card_that_falls_off_stays_as_lost_until_it_is_back() {
        let fake = Fake::with([card(1), card(2)]);
        let mut discovery = discovery();
        discovery.read_once(&fake);
        let whole = card_of(&discovery, 1).unwrap();

        let taken = std::mem::replace(
            &mut fake.cards.lock().unwrap()[0],
            Err(failed("nvmlDeviceGetHandleByIndex_v2", LOST)),
        );
        discovery.read_once(&fake);
        assert_eq!(card_of(&discovery, 1), Some(Card { health: Health::Lost, ..whole.clone() }));
        assert_eq!(card_of(&discovery, 2).unwrap().health, Health::Healthy);

        fake.cards.lock().unwrap()[0] = taken;
        discovery.read_once(&fake);
        assert_eq!(card_of(&discovery, 1), Some(whole));
        assert_eq!(discovery.returned(), [pci(1)]);
    }

    #[test]
    fn a_card_that_falls_off_while_it_is_read_is_lost() {
        let fake = Fake::with([card(1)]);
        let mut discovery = discovery();
        discovery.read_once(&fake);
        fake.change(0, |card| card.uuid = Err(failed("nvmlDeviceGetUUID", LOST)));
        discovery.read_once(&fake);
        assert_eq!(card_of(&discovery, 1).unwrap().health, Health::Lost);
    }

    #[test]
    fn another_card_in_the_same_slot_inherits_nothing() {
        let fake = Fake::with([card(1)]);
        let mut discovery = discovery();
        discovery.read_once(&fake);
        fake.change(0, |card| {
            card.uuid = Ok("GPU-other".into());
            card.name = Err(failed("nvmlDeviceGetName", UNKNOWN));
        });
        discovery.read_once(&fake);
        let card = card_of(&discovery, 1).unwrap();
        assert_eq!((card.uuid.as_deref(), card.product_name), (Some("GPU-other"), None));
    }

    #[test]
    fn an_xid_marks_the_card() {
        let fake = Fake::with([card(1), card(2)]);
        let mut health = HealthBook::default();
        health.note(&Event::Xid {
            card: Some(address(2)),
            xid: 48,
            gpu_instance: None,
            compute_instance: None,
        });
        let mut discovery = discovery();
        discovery.read(&fake, &health);
        assert_eq!(card_of(&discovery, 1).unwrap().health, Health::Healthy);
        assert_eq!(card_of(&discovery, 2).unwrap().health, Health::Unhealthy { reason: "xid-48".into() });
    }

    #[test]
    fn without_its_driver_the_machine_keeps_its_cards() {
        let mut discovery = discovery();
        discovery.driver_gone();
        assert_eq!(discovery.machine(), None);
        discovery.read_once(&Fake::with([card(1)]));
        discovery.driver_gone();
        assert_eq!(card_of(&discovery, 1).unwrap().health, Health::Lost);
    }

    #[test]
    fn numbers_newer_than_the_tables_are_left_out() {
        let fake = Fake::with([card(1)]);
        fake.change(0, |card| {
            card.brand = Ok(Some(tessera_nvml::Brand(99)));
            card.architecture = Ok(Some(tessera_nvml::Architecture(99)));
        });
        let mut discovery = discovery();
        discovery.read_once(&fake);
        let card = card_of(&discovery, 1).unwrap();
        assert_eq!((card.brand, card.architecture), (None, None));
    }
}
