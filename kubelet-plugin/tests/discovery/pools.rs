//! The publication of each emulated machine: driver, discovery and the topology rule together.

use k8s_openapi::api::resource::v1::Device;
use tessera_api::{DEFAULT_DRIVER_NAME, DeviceName};
use tessera_inventory::pool::PoolOptions;
use tessera_inventory::topology::{CardSet, Groups};
use tessera_inventory::{Pool, Topology};
use tessera_kubelet_plugin::discovery::Discovery;
use tessera_nvml::{Library, Nvml};

use crate::machine::{EmulatedMachine, hardware};

const PAIRS: &str = "{0,1}{2,3}{4,5}{6,7}";
const QUADS: &str = "{0,1,2,3}{4,5,6,7}";
const CUBE_MESH: &str = "{0,3}{1,2}{4,7}{5,6}";
const BRIDGES: &str = "{0,2}{1,3}{4,5}{6,7}";
const EIGHT: &str = "{0,1,2,3,4,5,6,7}";
const ASCENDING: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A machine, its order of publication, its groups (align 2 and 4, NVLink 2 and 4) by position, and the first card's
/// NVLink domain.
type Expected = (&'static str, &'static [usize], [&'static str; 4], Option<&'static str>);

/// Taken from `inventory/tests/data/groups.txt` for these machine types.
const EXPECTED: [Expected; 15] = [
    ("a30-x2", &[0, 1], ["{0,1}", "", "", ""], None),
    ("dgx-1v", &[0, 3, 2, 1, 5, 6, 7, 4], [CUBE_MESH, QUADS, CUBE_MESH, QUADS], Some("0000:06:00.0")),
    (
        "dgx-2",
        &ASCENDING,
        [
            "{0,1}{2,3}{4,5}{6,7}{8,9}{10,11}{12,13}{14,15}",
            "{0,1,2,3}{4,5,6,7}{8,9,10,11}{12,13,14,15}",
            "{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}",
            "{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}",
        ],
        Some("0000:34:00.0"),
    ),
    (
        "gb200-tray",
        ASCENDING.split_at(4).0,
        ["{0,1}{2,3}", "{0,1,2,3}", "{0,1,2,3}", "{0,1,2,3}"],
        Some("8825eef3-bc84-4133-44bd-737103fe5002.2"),
    ),
    ("gh200", &[0], ["", "", "", ""], None),
    ("h100-nvl-x8", &[0, 2, 1, 3, 4, 5, 6, 7], [BRIDGES, QUADS, BRIDGES, ""], Some("0000:18:00.0")),
    ("hgx-a100-40gb", ASCENDING.split_at(8).0, [PAIRS, QUADS, EIGHT, EIGHT], Some("0000:18:00.0")),
    ("hgx-a100-80gb", ASCENDING.split_at(8).0, [PAIRS, QUADS, EIGHT, EIGHT], Some("0000:07:00.0")),
    ("hgx-b200", ASCENDING.split_at(8).0, [PAIRS, QUADS, EIGHT, EIGHT], Some("0000:51:00.0")),
    ("hgx-h100-80gb", ASCENDING.split_at(8).0, [PAIRS, QUADS, EIGHT, EIGHT], Some("0000:18:00.0")),
    ("hgx-h200", ASCENDING.split_at(8).0, [PAIRS, QUADS, EIGHT, EIGHT], Some("0000:18:00.0")),
    ("l40s-x8", ASCENDING.split_at(8).0, [PAIRS, QUADS, "", ""], None),
    ("p4", &[0], ["", "", "", ""], None),
    ("rtx-pro-6000", ASCENDING.split_at(8).0, [PAIRS, QUADS, "", ""], None),
    ("t4", &[0], ["", "", "", ""], None),
];

fn written(groups: &Groups) -> [String; 4] {
    let numbers = |set: &CardSet| set.iter().map(|card| card.to_string()).collect::<Vec<_>>().join(",");
    [&groups.align_2, &groups.align_4, &groups.nvlink_2, &groups.nvlink_4]
        .map(|family| family.iter().map(|set| format!("{{{}}}", numbers(set))).collect())
}

#[test]
fn every_machine_is_grouped_by_its_links() {
    for name in hardware() {
        let (_, order, groups, domain) = EXPECTED
            .into_iter()
            .find(|expected| expected.0 == name)
            .unwrap_or_else(|| panic!("{name} is new: add its groups here"));
        let emulated = EmulatedMachine::new(&name);
        let mut discovery = Discovery::new(emulated.root().join("sys"));
        discovery.read_once(&Library::open_below(&emulated.root()).unwrap());
        let machine = discovery.machine().unwrap();

        let topology = Topology::new(&machine);
        let found = topology.groups();
        assert_eq!(found.order, order, "{name}");
        assert_eq!(written(&found), groups, "{name}");
        assert_eq!(topology.nvlink_domains()[0].as_deref(), domain, "{name}");

        let options = PoolOptions::new(DEFAULT_DRIVER_NAME);
        let pool = Pool::new(&machine, &options);
        assert_eq!(pool.warnings, [], "{name}");
        let whole = |device: &Device| matches!(device.name.parse(), Ok(DeviceName::Card(_)));
        assert_eq!(pool.devices().filter(whole).count(), machine.cards.len(), "{name}");
    }
}

/// Partitions for claims come and go in MIG mode, when NVLinks are off and another amount of memory is reserved.
#[test]
fn what_is_published_does_not_depend_on_which_cards_are_partitioned() {
    let mut tried = 0;
    for name in hardware() {
        let emulated = EmulatedMachine::new(&name);
        let library = Library::open_below(&emulated.root()).unwrap();
        let memory = emulated.root().join("undivided-cards.json");
        let discovery = || Discovery::new(emulated.root().join("sys")).remembering_in(memory.clone());
        let published = |discovery: &mut Discovery| {
            discovery.read_once(&library);
            Pool::new(&discovery.machine().unwrap(), &PoolOptions::new(DEFAULT_DRIVER_NAME)).slices
        };
        let mut discovery_of_this_life = discovery();
        let before = published(&mut discovery_of_this_life);
        let cards: Vec<_> = library.addresses().unwrap().into_iter().map(Result::unwrap).collect();
        for card in cards.into_iter().step_by(3) {
            if !library.card(card).unwrap().mig.is_ok_and(|mig| mig.is_some()) {
                continue;
            }
            library.set_mig_mode(card, true).unwrap();
            tried += 1;
            assert_eq!(published(&mut discovery_of_this_life), before, "{name}, {card} in MIG mode");
            assert_eq!(published(&mut discovery()), before, "{name}, {card} in MIG mode, after a restart");
        }
    }
    assert!(tried > 10);
}

/// Partitions of others on a card stay, so its links are of no use.
#[test]
fn a_card_with_partitions_of_others_is_in_no_group() {
    let emulated = EmulatedMachine::new("h100-nvl-x8");
    let library = Library::open_below(&emulated.root()).unwrap();
    let mut discovery = Discovery::new(emulated.root().join("sys"));
    let mut bridged = || {
        discovery.read_once(&library);
        written(&Topology::new(&discovery.machine().unwrap()).groups())[2].clone()
    };
    assert_eq!(bridged(), BRIDGES);
    let card = library.addresses().unwrap()[0].clone().unwrap();
    library.set_mig_mode(card, true).unwrap();
    assert_eq!(bridged(), BRIDGES);
    let profile = library.gpu_instance_profiles(card).unwrap().unwrap().remove(0);
    library.create_gpu_instance(card, profile.id, profile.placements[0]).unwrap();
    assert_eq!(bridged(), "{1,3}{4,5}{6,7}");
}
