//! Cost of devices, used through the allocator's placement.

use serde_json::{Value, json};
use tessera_api::gpu_pool::TopologyPolicy;
use tessera_inventory::topology::CardSet;
use tessera_placement::node_cards::CardState;
use tessera_placement::value::CardSets;

use super::cards::choices;
use super::devices::Devices;
use super::known_machines::{self, address};
use super::report;

fn name(position: usize) -> String {
    format!("gpu-{:02x}-00", 0x10 + position)
}

fn used() -> CardState {
    CardState { used: 1_000, slices: 0 }
}

/// Cards are published in an arbitrary order, here descending.
fn cards(count: usize) -> Devices {
    let devices: Vec<Value> = (0..count).rev().map(|position| json!({"name": name(position)})).collect();
    Devices::new(&devices, &[])
}

/// On machines with cards taken, the choice equals the reference's: DGX-1V, bridges, switches, an NVL72 tray.
#[test]
fn the_best_ring_set_of_what_is_free_is_taken() {
    let names = [
        "dgx-1-v100-hybrid-cube-mesh",
        "4x-rtx8000-bridges",
        "hgx-h100",
        "gb200-nvl72-compute-tray",
        "dgx-2-v100",
    ];
    for machine in names {
        let known = known_machines::named(machine);
        let sets = CardSets::of_report(&report(&known)).unwrap();
        let mut count = 0;
        for choice in choices().into_iter().filter(|choice| choice.machine == machine) {
            let mut node = cards(known.numa.len());
            let taken = CardSet::first(known.numa.len()) - choice.free;
            node.states = taken.iter().map(|card| (address(card), used())).collect();
            let mut placed = node.place(Some(&sets), choice.chosen.len(), "true");
            placed.sort();
            let chosen: Vec<String> = choice.chosen.iter().map(name).collect();
            assert_eq!(placed, chosen, "{machine}: free {:?}", choice.free);
            count += 1;
        }
        assert!(count > 20, "{machine}: {count}");
    }
}

/// On a DGX-1V with cards 0 and 5 taken, four cards with half of the bandwidth are left; a choice by index would use PCIe.
#[test]
fn a_dgx_1v_with_cards_taken() {
    let known = known_machines::named("dgx-1-v100-hybrid-cube-mesh");
    let sets = CardSets::of_report(&report(&known)).unwrap();
    let mut node = cards(8);
    node.states = [0, 5].map(|card| (address(card), used())).into_iter().collect();
    let mut placed = node.place(Some(&sets), 4, "true");
    placed.sort();
    let ring =
        |names: &[usize]| sets.topology().ring(sets.topology().set(names.iter().map(|card| address(*card))));
    assert_eq!(placed, [2, 3, 6, 7].map(name));
    assert!(ring(&[2, 3, 6, 7]) >= 50_000 && ring(&[1, 2, 3, 4]) < 50_000);
}

#[test]
fn connections_that_do_not_count() {
    let known = known_machines::named("dgx-1-v100-hybrid-cube-mesh");
    let sets = CardSets::of_report(&report(&known)).unwrap();
    let mut node = cards(8);
    // Among the free cards, 1 and 2 are a pair with two links; 4 and 6 are left of broken pairs.
    node.states = [0, 3, 5, 7].map(|card| (address(card), used())).into_iter().collect();
    let place = |node: &Devices| {
        let mut placed = node.place(Some(&sets), 2, "true");
        placed.sort();
        placed
    };
    assert_eq!(place(&node), [1, 2].map(name));
    node.topology = TopologyPolicy::Ignored;
    let packed = place(&node);
    let free = sets.topology().set([1, 2, 4, 6].map(address));
    let cost = |cards: [usize; 2]| sets.cost(sets.topology().set(cards.map(address)), free).buddies;
    let numbers =
        |names: &[String]| -> Vec<usize> { (0..8).filter(|card| names.contains(&name(*card))).collect() };
    let packed = numbers(&packed);
    assert_eq!(cost([packed[0], packed[1]]), cost([1, 2]).min(cost([4, 6])), "what breaks least");
}

fn shares(position: usize) -> Value {
    json!({
        "name": format!("{}-mps", name(position)), "allowMultipleAllocations": true,
        "capacity": {"slots": {"value": "10", "requestPolicy": {"default": "1"}}},
    })
}

#[test]
fn shares_go_to_open_cards() {
    let mut node = Devices::new(&[shares(0), shares(1), shares(2)], &[]);
    let part = |used: u32| CardState { used, slices: 0 };
    node.states = [(address(0), part(300)), (address(2), part(600))].into_iter().collect();
    assert_eq!(node.place(None, 1, "true"), ["gpu-12-00-mps"], "the fullest of the open ones");
    assert_eq!(node.place(None, 2, "true"), ["gpu-10-00-mps", "gpu-12-00-mps"]);
}
