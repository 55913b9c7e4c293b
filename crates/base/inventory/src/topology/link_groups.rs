//! Groups for claims requiring NVLink: inside one, every subset of the requested size has the best NVLink ring.

use std::collections::HashMap;

use super::align::Nested;
use super::domain::components;
use super::{CardSet, Topology};

/// Cards of one connected component for which the pairing is exact; for more, the nested pairs are used.
const EXACT: usize = 16;

/// Groups of pairs and of quads.
pub fn find(topology: &Topology, nested: &Nested) -> (Vec<CardSet>, Vec<CardSet>) {
    let direct = directly_linked(topology);
    let behind_switches = behind_switches(topology);
    let of_size = |size: usize, units: &[CardSet]| -> Vec<CardSet> {
        let behind_switches = behind_switches.iter().copied().filter(|group| group.len() >= size);
        behind_switches.chain(of_direct_links(topology, direct, size, units)).collect()
    };
    (of_size(2, &best_pairs(topology, direct, &nested.pairs)), of_size(4, &nested.quads))
}

/// Cards without a path to another card through a switch.
fn directly_linked(topology: &Topology) -> CardSet {
    let direct = |card: &usize| topology.all().iter().all(|other| !topology.switched.get(*card, other));
    topology.all().iter().filter(direct).map(CardSet::single).collect()
}

/// Cards behind one fabric of switches with all their links: any of them are as good as any others. A card with
/// dead links is left out: such a card would slow down the whole set.
fn behind_switches(topology: &Topology) -> Vec<CardSet> {
    let links = |card: usize| {
        topology
            .all()
            .iter()
            .filter(move |&other| *topology.switched.get(card, other))
            .map(move |other| topology.links(card, other))
    };
    let own: Vec<u32> = topology.all().iter().map(|card| links(card).max().unwrap_or(0)).collect();
    let full = own.iter().copied().max().unwrap_or(0);
    let mut groups: Vec<CardSet> = Vec::new();
    for card in topology.all().iter().filter(|&card| full > 0 && own[card] == full) {
        let single = CardSet::single(card);
        match groups.iter_mut().find(|group| topology.is_switched(**group | single)) {
            Some(group) => *group = *group | single,
            None => groups.push(single),
        }
    }
    groups
}

/// Groups of directly linked cards: the ideal units, merged while every subset stays ideal.
fn of_direct_links(topology: &Topology, direct: CardSet, size: usize, units: &[CardSet]) -> Vec<CardSet> {
    // A ring over NVLink needs two linked neighbours for each card, a pair one.
    let neighbours = (size - 1).min(2);
    let on_links = |set: CardSet| {
        set.iter()
            .all(|card| set.iter().filter(|&other| topology.links(card, other) > 0).count() >= neighbours)
    };
    let Some(ideal) = direct.subsets(size).filter(|&set| on_links(set)).map(|set| topology.ring(set)).max()
    else {
        return Vec::new();
    };
    let is_ideal =
        |group: CardSet| group.subsets(size).all(|set| on_links(set) && topology.ring(set) == ideal);

    let mut groups: Vec<CardSet> = units
        .iter()
        .copied()
        .filter(|&unit| direct.includes(unit) && unit.len() >= size && is_ideal(unit))
        .collect();
    while let Some((one, other)) = mergeable(&groups, is_ideal) {
        groups[one] = groups[one] | groups[other];
        groups.remove(other);
    }
    groups
}

fn mergeable(groups: &[CardSet], is_ideal: impl Fn(CardSet) -> bool) -> Option<(usize, usize)> {
    (0..groups.len())
        .flat_map(|one| (one + 1..groups.len()).map(move |other| (one, other)))
        .find(|&(one, other)| is_ideal(groups[one] | groups[other]))
}

/// The best pairing by links alone, or the nested pairs if equally good; they are not where bridges cross
/// quads.
fn best_pairs(topology: &Topology, direct: CardSet, nested: &[CardSet]) -> Vec<CardSet> {
    let value = |pair: CardSet| pair_value(topology, pair);
    let linked = |pair: &CardSet| {
        let (one, other) = pair.ends();
        topology.links(one, other) > 0
    };
    let mut pairs = Vec::new();
    for component in components(topology, direct) {
        let own: Vec<CardSet> =
            nested.iter().copied().filter(|pair| component.includes(*pair)).filter(linked).collect();
        if component.len() > EXACT {
            pairs.extend(own);
            continue;
        }
        let mut memo = HashMap::new();
        let best = best_pairing(topology, component, &mut memo);
        if own.iter().map(|&pair| value(pair)).sum::<u64>() >= best {
            pairs.extend(own);
            continue;
        }
        let mut rest = component;
        while let Some(&(_, pair)) = memo.get(&rest) {
            if pair.is_empty() {
                rest = rest - CardSet::single(rest.lowest());
            } else {
                pairs.push(pair);
                rest = rest - pair;
            }
        }
    }
    pairs
}

fn pair_value(topology: &Topology, pair: CardSet) -> u64 {
    topology.ring(pair) * 1000 + topology.weight(pair)
}

/// The value of the best pairing of `cards`; also records, for each subset visited, the pair of its lowest card
/// (empty for none).
fn best_pairing(topology: &Topology, cards: CardSet, memo: &mut HashMap<CardSet, (u64, CardSet)>) -> u64 {
    if cards.len() < 2 {
        return 0;
    }
    if let Some(&(value, _)) = memo.get(&cards) {
        return value;
    }
    let lowest = cards.lowest();
    let others = cards - CardSet::single(lowest);
    let mut best = (best_pairing(topology, others, memo), CardSet::EMPTY);
    for other in others.iter().filter(|&other| topology.links(lowest, other) > 0) {
        let pair = CardSet::single(lowest) | CardSet::single(other);
        let value = pair_value(topology, pair) + best_pairing(topology, cards - pair, memo);
        if value > best.0 {
            best = (value, pair);
        }
    }
    memo.insert(cards, best);
    best.0
}
