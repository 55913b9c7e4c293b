//! Sets of whole cards, against the reference rule.

use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;
use tessera_placement::value::CardSets;

use super::known_machines::{self, address};
use super::report;

/// One choice of the reference: machine, free cards, chosen cards, MB/s.
pub struct Choice {
    pub machine: &'static str,
    pub free: CardSet,
    pub chosen: CardSet,
    pub ring: u64,
}

fn set(bits: &str) -> CardSet {
    let bits = u64::from_str_radix(bits, 16).unwrap();
    (0..64).filter(|card| bits >> card & 1 == 1).map(CardSet::single).collect()
}

pub fn choices() -> Vec<Choice> {
    let lines = include_str!("../data/choices.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let mut words = line.split(' ');
            let machine = words.next().unwrap();
            words.skip(1).map(move |word| {
                let (free, rest) = word.split_once('>').unwrap();
                let (chosen, ring) = rest.split_once('/').unwrap();
                Choice { machine, free: set(free), chosen: set(chosen), ring: ring.parse().unwrap() }
            })
        })
        .collect()
}

#[test]
fn the_reference_rule_chooses_the_same() {
    let mut machines: Vec<&str> = Vec::new();
    let mut sets: Option<CardSets> = None;
    let mut count = 0;
    for choice in choices() {
        if machines.last() != Some(&choice.machine) {
            machines.push(choice.machine);
            sets = CardSets::of_report(&report(&known_machines::named(choice.machine)));
        }
        // Comparing all half-size sets of sixteen cards takes seconds in tests.
        if choice.chosen.len() > 4 && choice.free.len() > 12 {
            continue;
        }
        let sets = sets.as_ref().unwrap();
        let best = choice.free.subsets(choice.chosen.len()).min_by_key(|set| sets.cost(*set, choice.free));
        let best = best.unwrap();
        let cards = |set: CardSet| set.iter().collect::<Vec<_>>();
        assert_eq!(cards(best), cards(choice.chosen), "{} of {:?}", choice.machine, cards(choice.free));
        assert_eq!(sets.topology().ring(best), choice.ring, "{} {:?}", choice.machine, cards(best));
        count += 1;
    }
    assert!(machines.len() == 20 && count > 1_500, "{} machines, {count} choices", machines.len());
}

/// The controller's knowledge of a machine equals the plugin's, except for the fabric.
#[test]
fn a_report_brings_all_connections() {
    for machine in known_machines::all() {
        let here = Topology::new(&machine.machine());
        let there = Topology::from_report(&report(&machine)).unwrap();
        assert_eq!(there, here, "{}", machine.name);
    }
}

#[test]
fn reports_that_nobody_wrote_do_no_harm() {
    let mut report = report(&known_machines::named("hgx-h100"));
    report.links.iter_mut().for_each(|(.., links)| *links = u32::MAX);
    report.link_rate = Some(u32::MAX);
    report.links.push((address(70), address(71), 3));
    report.pcie.push((address(0), address(1), "no level".to_owned()));
    let sets = CardSets::of_report(&report).unwrap();
    let all = CardSet::first(8);
    assert!(sets.topology().ring(all) > 0 && sets.cost(all, all).numa_nodes == 2);
    for position in 0..100 {
        report.cards.entry(address(position)).or_default();
    }
    assert!(CardSets::of_report(&report).is_none(), "more cards than any machine has");
}
