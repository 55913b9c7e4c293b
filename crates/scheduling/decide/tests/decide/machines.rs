//! Every known machine through the whole loop, as one node and as several of a rack: claims for whole cards.

use tessera_api::gpu_pool::TopologyPolicy;
use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;

use crate::known_machines::{self, KnownMachine};
use crate::known_nodes::KnownNodes;

/// Trays of an NVL72.
const TRAYS: usize = 18;

/// The best ring of `cards` cards in the empty machine, found by trying all sets.
fn best_ring(topology: &Topology, cards: usize) -> u64 {
    let all = CardSet::first(topology.cards().len());
    all.subsets(cards).map(|set| topology.ring(set)).max().unwrap()
}

/// Number of nodes in a rack.
fn nodes(machine: &KnownMachine) -> usize {
    if machine.name.contains("nvl72") { TRAYS } else { 1 }
}

#[test]
fn on_every_empty_machine_a_claim_gets_the_best_ring() {
    let mut better_than_the_first_cards = 0;
    for machine in known_machines::all() {
        let total = machine.numa.len();
        for count in [1, 2, 4, total] {
            for policy in [TopologyPolicy::Preferred, TopologyPolicy::Required] {
                let mut known = KnownNodes::new(&machine, nodes(&machine), policy);
                let got = known.ask("p", count);
                let (node, cards) = got.unwrap_or_else(|| panic!("{}: no {count} cards", machine.name));
                let ring = |cards: CardSet| known.topology().ring(cards);
                assert_eq!((node, cards.len()), (0, count), "{}", machine.name);
                assert_eq!(ring(cards), best_ring(known.topology(), count), "{} {cards:?}", machine.name);
                better_than_the_first_cards += usize::from(ring(cards) > ring(CardSet::first(count)));
            }
        }
    }
    assert!(better_than_the_first_cards > 4, "on no machine does it matter which cards are taken");
}

/// Cards of others are left alone, and the remaining cards are used up to the last.
#[test]
fn every_machine_is_filled_with_the_best_pairs_and_quads() {
    for machine in known_machines::all() {
        for count in [2, 4] {
            let mut known = KnownNodes::new(&machine, nodes(&machine), TopologyPolicy::Required);
            let total = nodes(&machine) * machine.numa.len();
            let ideal = best_ring(known.topology(), count);
            let mut free = vec![CardSet::first(machine.numa.len()); nodes(&machine)];
            for number in 0..total / count {
                let got = known.ask(&format!("p{number}"), count);
                let (node, cards) =
                    got.unwrap_or_else(|| panic!("{}: no {count} cards any more", machine.name));
                assert!(free[node].includes(cards), "{}: {cards:?} twice", machine.name);
                free[node] = free[node] - cards;
                assert_eq!(known.topology().ring(cards), ideal, "{} {cards:?}", machine.name);
            }
            assert_eq!(known.ask("one-more", 1), None, "{}", machine.name);
        }
    }
}

/// A claim for all cards of a tray goes to an unused tray, and small claims share trays.
#[test]
fn trays_of_an_nvl72_are_kept_whole() {
    let machine = known_machines::named("gb200-nvl72-compute-tray");
    let mut known = KnownNodes::new(&machine, TRAYS, TopologyPolicy::Required);
    for number in 0..8 {
        let (node, _) = known.ask(&format!("small-{number}"), 1).unwrap();
        assert_eq!(node, number / 4, "small claims fill one tray after the other");
    }
    for number in 0..TRAYS - 2 {
        let (_, cards) = known.ask(&format!("tray-{number}"), 4).unwrap();
        assert_eq!(cards, CardSet::first(4));
    }
    assert_eq!(known.ask("late", 4), None);
    known.end("tray-3");
    assert_eq!(known.ask("late", 4).map(|(_, cards)| cards), Some(CardSet::first(4)));
}

/// With cards 0 and 5 of a DGX-1V in use, four of the remaining cards are still linked. The first four are not.
#[test]
fn cards_that_others_hold_are_planned_around() {
    let machine = known_machines::named("dgx-1-v100-hybrid-cube-mesh");
    let mut known = KnownNodes::new(&machine, 1, TopologyPolicy::Preferred);
    let set = |cards: &[usize]| -> CardSet { cards.iter().map(|card| CardSet::single(*card)).collect() };
    known.take("other", 0, set(&[0, 5]));
    assert_eq!(known.ask("p", 4), Some((0, set(&[2, 3, 6, 7]))));
    assert_eq!(known.ask("too-many", 3), None);
    known.end("other");
    assert_eq!(known.ask("late", 2), Some((0, set(&[0, 4]))));
}
