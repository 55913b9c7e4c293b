//! Groups and order of publication against the reference rule.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_inventory::machine::{ClusterUuid, CommonAncestor, Fabric, FabricState, NvLinkRemote};
use tessera_inventory::topology::{CardSet, Group, Groups};
use tessera_inventory::{Machine, Topology};

use crate::known_machines::{self, KnownMachine, address};

/// Groups as `data/groups.txt` writes them.
fn written(groups: &Groups) -> String {
    let sets = |sets: &[CardSet]| -> String {
        sets.iter()
            .map(|set| {
                format!("{{{}}}", set.iter().map(|card| card.to_string()).collect::<Vec<_>>().join(","))
            })
            .collect()
    };
    format!(
        "order {:?} align2 {} align4 {} nvlink2 {} nvlink4 {}",
        groups.order,
        sets(&groups.align_2),
        sets(&groups.align_4),
        sets(&groups.nvlink_2),
        sets(&groups.nvlink_4)
    )
}

fn expected() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("../data/groups.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").unwrap()).collect()
}

#[track_caller]
fn check(name: &str, machine: &KnownMachine) {
    let groups = Topology::new(&machine.machine()).groups();
    assert_eq!(written(&groups), expected()[name], "{name}");
}

#[test]
fn every_known_machine() {
    for machine in known_machines::all() {
        check(&machine.name, &machine);
    }
}

#[test]
fn dead_links() {
    let mut h100 = known_machines::named("hgx-h100");
    for other in [0, 1, 2, 4, 5, 6, 7] {
        (h100.links[3][other], h100.links[other][3]) = (16, 16);
    }
    check("H100 with card 3 at 16 of 18 links", &h100);

    let mut dgx1 = known_machines::named("dgx-1-v100-hybrid-cube-mesh");
    (dgx1.links[0][3], dgx1.links[3][0]) = (1, 1);
    check("DGX-1V, one of the two 0-3 links dead", &dgx1);

    let mut bridges = known_machines::named("pcie-8gpu-nvlink-bridges");
    (bridges.links[0][2], bridges.links[2][0]) = (0, 0);
    check("bridges8, bridge 0-2 missing", &bridges);
}

/// Two sockets, pairs behind one PCIe switch, every other pair bridged (none on ten cards).
fn bridged(count: usize) -> KnownMachine {
    let node = |card: usize| card * 2 / count;
    let table = |value: &dyn Fn(usize, usize) -> u32| -> Vec<Vec<u32>> {
        (0..count)
            .map(|one| (0..count).map(|other| if one == other { 0 } else { value(one, other) }).collect())
            .collect()
    };
    KnownMachine {
        name: format!("n={count}"),
        link_rate: 25_000,
        switched: false,
        numa: (0..count).map(|card| node(card) as u32).collect(),
        links: table(&|one, other| {
            if one / 2 == other / 2 && one / 2 % 2 == 0 && count != 10 { 4 } else { 0 }
        }),
        closeness: table(&|one, other| {
            if one / 2 == other / 2 {
                50
            } else if node(one) == node(other) {
                20
            } else {
                10
            }
        }),
    }
}

#[test]
fn odd_and_large_counts() {
    for count in [2, 3, 5, 6, 7, 10, 12, 16] {
        let machine = bridged(count);
        check(&machine.name, &machine);
    }
}

#[test]
fn none_and_one() {
    let nothing = Topology::new(&Machine::default()).groups();
    assert_eq!(nothing, Groups::default());

    let mut machine = known_machines::named("hgx-h100").machine();
    machine.cards.truncate(1);
    let topology = Topology::new(&machine);
    assert_eq!(topology.groups(), Groups { order: vec![0], ..Groups::default() });
    assert_eq!(topology.nvlink_domains(), [None]);
}

/// In a virtual machine that says neither links nor NUMA nodes, all cards are one group.
#[test]
fn flat_machine() {
    let mut machine = known_machines::named("pcie-8gpu-vm-flat").machine();
    let pairs: Vec<_> =
        (0..8).flat_map(|one| (0..one).map(move |other| (address(one), address(other)))).collect();
    for (one, other) in pairs {
        let mut pair = machine.pairs.get(one, other);
        pair.common_ancestor = Some(CommonAncestor::System);
        machine.pairs.insert(one, other, pair);
    }
    // NUMA nodes alone tell the sockets apart.
    let known = Topology::new(&machine).groups();
    assert_eq!(written(&known), expected()["pcie-8gpu-vm-flat"]);

    for card in &mut machine.cards {
        card.numa_node = None;
    }
    let flat = Topology::new(&machine).groups();
    assert_eq!(
        written(&flat),
        "order [0, 1, 2, 3, 4, 5, 6, 7] align2 {0,1,2,3,4,5,6,7} align4 {0,1,2,3,4,5,6,7} nvlink2  nvlink4 "
    );
}

/// A card whose links are all down is no reason to take NVLink from the others.
#[test]
fn a_card_without_links_behind_switches() {
    let mut machine = known_machines::named("hgx-h100").machine();
    machine.cards[3].nvlinks = Some(Vec::new());
    let topology = Topology::new(&machine);
    let groups = topology.groups();
    let others: CardSet = [0, 1, 2, 4, 5, 6, 7].map(CardSet::single).into_iter().collect();
    assert_eq!((groups.nvlink_2, groups.nvlink_4), (vec![others], vec![others]));
    let domains = topology.nvlink_domains();
    assert_eq!(domains[3], None);
    assert_eq!(domains[7], Some(address(0).to_string()));
}

#[test]
fn links_to_switches_need_the_drivers_word() {
    let base = known_machines::named("gb200-nvl72-compute-tray").machine();
    let with_access = |access: Option<bool>, machine: &Machine| {
        let mut machine = machine.clone();
        for one in 0..4 {
            for other in 0..one {
                let mut pair = machine.pairs.get(address(one), address(other));
                pair.nvlink_peer_access = access;
                machine.pairs.insert(address(one), address(other), pair);
            }
        }
        Topology::new(&machine)
    };
    let cluster = ClusterUuid(0x5f0e_3c6a_0000_4000_8000_0123_4567_89ab_u128.to_be_bytes());
    let fabric = |state, clique| Some(Fabric { state, cluster, clique });
    assert_eq!(with_access(None, &base).links(0, 1), 0);
    assert_eq!(with_access(Some(false), &base).links(0, 1), 0);
    assert_eq!(with_access(Some(true), &base).links(0, 1), 18);

    let mut machine = base.clone();
    for card in &mut machine.cards {
        card.fabric = fabric(FabricState::Completed, 7);
    }
    let completed = with_access(None, &machine);
    assert_eq!(completed.links(0, 1), 18);
    assert_eq!(completed.nvlink_domains()[2].as_deref(), Some("5f0e3c6a-0000-4000-8000-0123456789ab.7"));

    machine.cards[0].fabric = fabric(FabricState::InProgress, 7);
    machine.cards[1].fabric = fabric(FabricState::Completed, 8);
    let partial = with_access(Some(true), &machine);
    assert_eq!(
        (partial.links(0, 1), partial.links(0, 2), partial.links(1, 2), partial.links(2, 3)),
        (0, 0, 0, 18)
    );
    assert_eq!(partial.nvlink_domains()[0], None);
}

/// A single HGX machine reports an all-zero cluster UUID, the same one as its neighbours.
#[test]
fn a_fabric_of_one_machine_is_no_domain_of_its_own() {
    let mut machine = known_machines::named("hgx-h100").machine();
    for card in &mut machine.cards {
        let cluster = ClusterUuid([0; 16]);
        card.fabric = Some(Fabric { state: FabricState::Completed, cluster, clique: 0 });
    }
    let topology = Topology::new(&machine);
    assert_eq!(topology.links(0, 7), 18);
    assert_eq!(topology.nvlink_domains(), vec![Some(address(0).to_string()); 8]);
}

#[test]
fn both_ends_of_a_link_count() {
    let mut machine = known_machines::named("4x-rtx8000-bridges").machine();
    machine.cards[0].nvlinks = Some(Vec::new());
    assert_eq!(Topology::new(&machine).links(0, 3), 0, "one end says that it is down");
    machine.cards[0].nvlinks = None;
    assert_eq!(Topology::new(&machine).links(0, 3), 2, "one end says nothing");
    if let Some(links) = &mut machine.cards[3].nvlinks {
        links.iter_mut().for_each(|link| link.remote = NvLinkRemote::Other);
    }
    assert_eq!(Topology::new(&machine).links(0, 3), 0, "the remote end is unknown");
}

#[test]
fn too_many_cards_are_published_without_groups() {
    let mut machine = Machine::default();
    let base = known_machines::named("hgx-h100").machine().cards.remove(0);
    for position in (0..100).rev() {
        machine.cards.push(tessera_inventory::machine::Card { pci: address(position), ..base.clone() });
    }
    let topology = Topology::new(&machine);
    assert_eq!(topology.groups(), Groups { order: (0..100).collect(), ..Groups::default() });
    assert_eq!(topology.nvlink_domains(), vec![None; 100]);
}

/// What a user sees of the groups: the attributes' values by PCI address, and the addresses in order.
fn published(machine: &Machine) -> (Vec<String>, BTreeMap<String, Vec<Option<String>>>) {
    let topology = Topology::new(machine);
    let groups = topology.groups();
    let order = groups.order.iter().map(|&card| topology.cards()[card].to_string()).collect();
    let values = (0..topology.cards().len())
        .map(|card| {
            let families = [Group::Align2, Group::Align4, Group::NvLink2, Group::NvLink4];
            let values =
                families.map(|family| groups.value(&topology, family, card).map(|value| value.to_string()));
            (topology.cards()[card].to_string(), values.to_vec())
        })
        .collect();
    (order, values)
}

proptest! {
    /// Index, minor and order of enumeration mean nothing.
    #[test]
    fn renumbering_changes_nothing(
        (machine, shuffled) in prop::sample::select(known_machines::all()).prop_flat_map(|machine| {
            let machine = machine.machine();
            let cards = Just(machine.cards.clone()).prop_shuffle();
            (Just(machine), cards)
        })
    ) {
        let renumbered = Machine { cards: shuffled, ..machine.clone() };
        prop_assert_eq!(published(&renumbered), published(&machine));
    }

    /// Whatever is linked: pairs are disjoint, quads are made of pairs, every card is published once.
    #[test]
    fn groups_are_nested_on_any_machine(
        count in 0usize..11,
        links in prop::collection::vec(prop_oneof![3 => Just(0u32), 1 => 1u32..4], 55),
        closeness in prop::collection::vec(prop::sample::select(vec![10, 20, 30, 40, 50]), 55),
        numa in prop::collection::vec(0u32..3, 11),
    ) {
        let table = |values: &[u32]| -> Vec<Vec<u32>> {
            let at = |one: usize, other: usize| match one.cmp(&other) {
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Less => values[other * (other - 1) / 2 + one],
                std::cmp::Ordering::Greater => values[one * (one - 1) / 2 + other],
            };
            (0..count).map(|one| (0..count).map(|other| at(one, other)).collect()).collect()
        };
        let machine = KnownMachine {
            name: "random".to_owned(),
            link_rate: 25_781,
            switched: false,
            numa: numa[..count].to_vec(),
            links: table(&links),
            closeness: table(&closeness),
        };
        let topology = Topology::new(&machine.machine());
        let groups = topology.groups();

        let mut order = groups.order.clone();
        order.sort_unstable();
        prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        for family in [&groups.align_2, &groups.align_4, &groups.nvlink_2, &groups.nvlink_4] {
            let union: CardSet = family.iter().copied().collect();
            prop_assert_eq!(union.len(), family.iter().map(|set| set.len()).sum::<usize>());
        }
        let quads: CardSet = groups.align_4.iter().copied().collect();
        prop_assert_eq!(quads.len(), count / 4 * 4);
        for quad in &groups.align_4 {
            let inside: Vec<CardSet> =
                groups.align_2.iter().copied().filter(|pair| !(*pair & *quad).is_empty()).collect();
            prop_assert_eq!(inside.iter().copied().collect::<CardSet>(), *quad);
        }
        for group in &groups.nvlink_2 {
            let positions: Vec<usize> = group.iter().collect();
            for (at, &one) in positions.iter().enumerate() {
                for &other in &positions[at + 1..] {
                    prop_assert!(topology.links(one, other) > 0);
                }
            }
        }
    }
}
