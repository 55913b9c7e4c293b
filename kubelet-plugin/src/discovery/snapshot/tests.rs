//! Facts and reports of discovery when cards fail, return or switch MIG mode.

use std::sync::Mutex;

use tessera_api::facts::{NvLinkRemote, NvLinkVersion};
use tessera_api::health::HealthFault;
use tessera_nvml::{
    ComputeCapability, CudaVersion, Event, Identity, Memory, MigMode, NvmlError, PairReadings,
};

use super::*;

/// A machine whose cards a test may break.
#[derive(Clone, Default)]
struct Fake {
    cards: Arc<Mutex<Vec<Result<tessera_nvml::CardReadings, NvmlError>>>>,
}

const LOST: u32 = 15;
const UNKNOWN: u32 = 999;

fn failed(function: &'static str, code: u32) -> NvmlError {
    NvmlError::Call { function, code, text: "Text".into() }
}

fn pci(bus: u8) -> PciBusId {
    PciBusId::new(0, bus, 0, 0).unwrap()
}

fn card(bus: u8) -> tessera_nvml::CardReadings {
    tessera_nvml::CardReadings {
        address: pci(bus),
        index: Ok(0),
        minor: Ok(0),
        pci_device_id: Ok(0x2330_10de),
        uuid: Ok(format!("GPU-{bus}")),
        name: Ok("NVIDIA H100 80GB HBM3".into()),
        brand: Ok(Some(tessera_nvml::Brand(14))),
        architecture: Ok(Some(tessera_nvml::Architecture(9))),
        compute_capability: Ok(Some(ComputeCapability { major: 9, minor: 0 })),
        cores: Ok(None),
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
    fn with(cards: impl IntoIterator<Item = tessera_nvml::CardReadings>) -> Self {
        Fake { cards: Arc::new(Mutex::new(cards.into_iter().map(Ok).collect())) }
    }

    fn change(&self, position: usize, change: impl FnOnce(&mut tessera_nvml::CardReadings)) {
        change(self.cards.lock().unwrap()[position].as_mut().unwrap());
    }
}

impl Nvml for Fake {
    fn identify(&self, _address: PciBusId) -> Result<Identity, NvmlError> {
        unreachable!("discovery does not identify")
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        Ok("580.95.05".into())
    }

    fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
        Ok(CudaVersion { major: 13, minor: 0 })
    }

    fn addresses(&self) -> Result<Vec<Result<PciBusId, NvmlError>>, NvmlError> {
        let cards = self.cards.lock().unwrap();
        Ok(cards
            .iter()
            .map(|card| card.as_ref().map(|card| card.address).map_err(NvmlError::clone))
            .collect())
    }

    fn card(&self, address: PciBusId) -> Result<tessera_nvml::CardReadings, NvmlError> {
        let cards = self.cards.lock().unwrap();
        let found = cards.iter().flatten().find(|card| card.address == address);
        found.cloned().ok_or_else(|| failed("nvmlDeviceGetHandleByPciBusId_v2", 6))
    }

    fn pair(&self, _one: PciBusId, _other: PciBusId) -> Result<PairReadings, NvmlError> {
        Ok(PairReadings {
            common_ancestor: Ok(Some(tessera_nvml::CommonAncestor::Node)),
            nvlink: Ok(Some(tessera_nvml::PeerToPeer::NotSupported)),
        })
    }
}

/// Without a sysfs: its facts are missing in every look.
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
    assert_eq!(missed(&discovery, 1), ["uuid", "memory", "migCapable", "nvlinks", "pcieRoot", "numaNode"]);
}

/// The publication must not depend on whether a card happens to be partitioned.
#[test]
fn what_is_reserved_in_mig_mode_does_not_count() {
    let memory = |reserved| Ok(Some(Memory { total: 80 << 30, reserved, used: 0, free: 0 }));
    let mig = |current| Ok(Some(MigMode { current, pending: current }));
    let fake = Fake::with([card(0x10)]);
    let mut discovery = discovery();
    let mut reserved_when = |read, mode| {
        fake.change(0, |card| (card.memory, card.mig) = (memory(read), mig(mode)));
        discovery.read_once(&fake);
        card_of(&discovery, 0x10).unwrap().reserved_memory_bytes
    };
    assert_eq!(reserved_when(600, true), 600, "better than nothing");
    assert_eq!(reserved_when(480, false), 480);
    assert_eq!(reserved_when(700, true), 480);
    assert_eq!(reserved_when(500, false), 500);
}

#[test]
fn what_is_reserved_outside_mig_mode_outlives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let memory = |reserved| Ok(Some(Memory { total: 80 << 30, reserved, used: 0, free: 0 }));
    let mig = |current| Ok(Some(MigMode { current, pending: current }));
    let fake = Fake::with([card(0x10)]);
    let reserved_at_a_start = |read, mode| {
        fake.change(0, |card| (card.memory, card.mig) = (memory(read), mig(mode)));
        let mut discovery = discovery().remembering_in(directory.path().join("undivided-cards.json"));
        discovery.read_once(&fake);
        card_of(&discovery, 0x10).unwrap().reserved_memory_bytes
    };
    assert_eq!(reserved_at_a_start(480, false), 480);
    assert_eq!(reserved_at_a_start(700, true), 480);
}

#[test]
fn what_a_link_leads_to_does_not_flicker() {
    let link = |link, to| tessera_nvml::NvLinkReadings {
        link,
        active: true,
        version: Ok(Some(NvLinkVersion::V2_0)),
        megabytes_per_second: Ok(None),
        remote: Ok(Some(NvLinkRemote::Gpu(pci(to)))),
    };
    let fake =
        Fake::with([tessera_nvml::CardReadings { links: Ok(vec![link(0, 2), link(1, 3)]), ..card(1) }]);
    let mut discovery = discovery();
    discovery.read_once(&fake);
    let before = discovery.machine();
    let unanswered = tessera_nvml::NvLinkReadings {
        version: Err(failed("nvmlDeviceGetNvLinkVersion", UNKNOWN)),
        remote: Err(failed("nvmlDeviceGetNvLinkRemotePciInfo_v2", UNKNOWN)),
        ..link(1, 3)
    };
    fake.change(0, |card| card.links = Ok(vec![link(0, 2), unanswered.clone()]));
    discovery.read_once(&fake);
    assert_eq!(discovery.machine(), before);

    // A different link, without known facts.
    fake.change(0, |card| card.links = Ok(vec![tessera_nvml::NvLinkReadings { link: 2, ..unanswered }]));
    discovery.read_once(&fake);
    let links = card_of(&discovery, 1).unwrap().nvlinks.unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!(links[0].remote, NvLinkRemote::Other);
}

/// A machine whose card is switched to MIG mode between the questions for its mode and for its links.
#[derive(Clone, Default)]
struct Switching {
    fake: Fake,
    before: Arc<Mutex<Option<tessera_nvml::CardReadings>>>,
}

impl Nvml for Switching {
    fn identify(&self, address: PciBusId) -> Result<Identity, NvmlError> {
        self.fake.identify(address)
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        self.fake.driver_version()
    }

    fn cuda_version(&self) -> Result<CudaVersion, NvmlError> {
        self.fake.cuda_version()
    }

    fn addresses(&self) -> Result<Vec<Result<PciBusId, NvmlError>>, NvmlError> {
        self.fake.addresses()
    }

    fn card(&self, address: PciBusId) -> Result<tessera_nvml::CardReadings, NvmlError> {
        self.before.lock().unwrap().take().map_or_else(|| self.fake.card(address), Ok)
    }

    fn pair(&self, one: PciBusId, other: PciBusId) -> Result<PairReadings, NvmlError> {
        self.fake.pair(one, other)
    }
}

#[test]
fn links_stay_when_the_mode_changes_between_two_questions() {
    let link = tessera_nvml::NvLinkReadings {
        link: 0,
        active: true,
        version: Ok(Some(NvLinkVersion::V2_0)),
        megabytes_per_second: Ok(None),
        remote: Ok(Some(NvLinkRemote::Switch)),
    };
    let down = tessera_nvml::NvLinkReadings { active: false, ..link.clone() };
    let with = |link: &tessera_nvml::NvLinkReadings, mode| tessera_nvml::CardReadings {
        links: Ok(vec![link.clone()]),
        mig: Ok(Some(MigMode { current: mode, pending: mode })),
        ..card(1)
    };
    let machine = Switching { fake: Fake::with([with(&link, false)]), ..Switching::default() };
    let mut discovery = discovery();
    let mut links = |machine: &Switching| {
        discovery.read_once(machine);
        card_of(&discovery, 1).unwrap().nvlinks.unwrap().len()
    };
    assert_eq!(links(&machine), 1);
    *machine.before.lock().unwrap() = Some(with(&down, false));
    machine.fake.change(0, |card| *card = with(&down, true));
    assert_eq!(links(&machine), 1, "switched on");
    *machine.before.lock().unwrap() = Some(with(&down, false));
    machine.fake.change(0, |card| *card = with(&link, false));
    assert_eq!(links(&machine), 1, "switched off");
    machine.fake.change(0, |card| *card = with(&down, false));
    assert_eq!(links(&machine), 0, "a link that goes down is told");
}

#[test]
fn a_damaged_memory_is_none() {
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("undivided-cards.json");
    for damage in ["", "{", "[]", r#"{"cards": {"x": 1}}"#, r#"{"cards":{},"peers":{},"more":1}"#] {
        std::fs::write(&file, damage).unwrap();
        let mut discovery = discovery().remembering_in(file.clone());
        discovery.read_once(&Fake::with([card(1), card(2)]));
        assert_eq!(card_of(&discovery, 1).unwrap().nvlinks, Some(Vec::new()));
        let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(written["cards"]["0000:01:00.0"]["uuid"], "GPU-1", "{damage}");
    }
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
    health.note(&Event::Xid { card: Some(pci(2)), xid: 48, gpu_instance: None, compute_instance: None });
    let mut discovery = discovery();
    let fake: Arc<dyn Nvml> = Arc::new(fake);
    discovery.read(&fake, &health, None);
    assert_eq!(card_of(&discovery, 1).unwrap().health, Health::Healthy);
    assert_eq!(card_of(&discovery, 2).unwrap().faults, [HealthFault::xid(48, None)].into());
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
