//! The best nested pairs and quads of a machine, over any kind of connection.

use super::{CardSet, Topology};

/// The most cards for which the division is exact (a table of 2^12 sets); more are divided by NUMA node first.
const EXACT: usize = 12;
/// Relative bandwidths are in millionths of the machine's best.
const MILLION: u64 = 1_000_000;

/// Disjoint quads, each of two of the pairs, then the remaining pair or single.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nested {
    /// Sets of four.
    pub quads: Vec<CardSet>,
    /// Sets of two.
    pub pairs: Vec<CardSet>,
}

/// The score of a division. Earlier fields decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Sum of ring bandwidths relative to the best set of that size, a card weighing as much in a pair as in a quad.
    /// Bandwidths themselves would let a gain in quads break much faster pairs.
    relative_ring: u64,
    pair_ring: u64,
    quad_weight: u64,
    pair_weight: u64,
}

impl std::ops::Add for Score {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            relative_ring: self.relative_ring + other.relative_ring,
            pair_ring: self.pair_ring + other.pair_ring,
            quad_weight: self.quad_weight + other.quad_weight,
            pair_weight: self.pair_weight + other.pair_weight,
        }
    }
}

/// Divides all cards of the machine.
pub fn nested(topology: &Topology) -> Nested {
    let mut nested = Nested::default();
    let divider =
        Divider { topology, ideal_pair: topology.ideal_ring(2), ideal_quad: topology.ideal_ring(4) };
    for part in parts(topology, topology.all()) {
        divider.divide(part, &mut nested);
    }
    nested
}

/// Parts small enough for an exact division: all cards, else the cards of a NUMA node, else runs of eight.
fn parts(topology: &Topology, cards: CardSet) -> Vec<CardSet> {
    if cards.len() <= EXACT {
        return vec![cards];
    }
    let mut nodes: Vec<(Option<u32>, CardSet)> = Vec::new();
    for card in cards.iter() {
        let node = topology.numa_nodes[card];
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, part)) => *part = *part | CardSet::single(card),
            None => nodes.push((node, CardSet::single(card))),
        }
    }
    if let [(_, only)] = nodes[..] {
        let positions: Vec<usize> = only.iter().collect();
        return positions
            .chunks(8)
            .map(|run| run.iter().map(|&card| CardSet::single(card)).collect())
            .collect();
    }
    nodes.into_iter().flat_map(|(_, part)| parts(topology, part)).collect()
}

struct Divider<'a> {
    topology: &'a Topology,
    ideal_pair: u64,
    ideal_quad: u64,
}

/// The best unit to begin the division of a set with, and the score of the whole division.
#[derive(Clone, Copy)]
struct Choice {
    score: Score,
    unit: CardSet,
    pairs: [CardSet; 2],
}

impl Divider<'_> {
    /// Exact, by dynamic programming: the lowest card is in some quad, or in the remaining pair or single.
    fn divide(&self, part: CardSet, nested: &mut Nested) {
        let mut table = Table { part, choices: vec![None; 1 << part.len()] };
        self.best(part, &mut table);
        let mut rest = part;
        while let Some(choice) = table.get(rest).filter(|_| !rest.is_empty()) {
            if choice.unit.len() == 4 {
                nested.quads.push(choice.unit);
            }
            nested.pairs.extend(choice.pairs.iter().filter(|pair| !pair.is_empty()));
            rest = rest - choice.unit;
        }
    }

    fn best(&self, cards: CardSet, table: &mut Table) -> Score {
        if cards.is_empty() {
            return Score::default();
        }
        if let Some(choice) = table.get(cards) {
            return choice.score;
        }
        let lowest = CardSet::single(cards.lowest());
        let others = cards - lowest;
        let mut best: Option<Choice> = None;
        let mut consider = |choice: Choice| {
            if best.is_none_or(|best| choice.score > best.score) {
                best = Some(choice);
            }
        };
        for three in others.subsets(3) {
            let quad = lowest | three;
            let (score, pairs) = self.quad(quad);
            consider(Choice { score: score + self.best(cards - quad, table), unit: quad, pairs });
        }
        if cards.len() % 4 >= 2 {
            for other in others.subsets(1) {
                let pair = lowest | other;
                let score = Score {
                    relative_ring: self.relative(pair),
                    pair_ring: self.topology.ring(pair),
                    quad_weight: 0,
                    pair_weight: self.topology.weight(pair),
                };
                let score = score + self.best(cards - pair, table);
                consider(Choice { score, unit: pair, pairs: [pair, CardSet::EMPTY] });
            }
        }
        if cards.len() % 2 == 1 {
            consider(Choice { score: self.best(others, table), unit: lowest, pairs: [CardSet::EMPTY; 2] });
        }
        table.put(cards, best);
        best.map_or(Score::default(), |choice| choice.score)
    }

    /// The score of a quad with its best split into two pairs.
    fn quad(&self, quad: CardSet) -> (Score, [CardSet; 2]) {
        let lowest = CardSet::single(quad.lowest());
        let mut best = ((0, 0, 0), [CardSet::EMPTY; 2]);
        for other in (quad - lowest).iter() {
            let one = lowest | CardSet::single(other);
            let two = quad - one;
            let key = (
                self.topology.ring(one) + self.topology.ring(two),
                self.topology.weight(one) + self.topology.weight(two),
                self.relative(one) + self.relative(two),
            );
            // Every pair has a bandwidth, so the first split always beats the initial zeros.
            if key > best.0 {
                best = (key, [one, two]);
            }
        }
        let ((pair_ring, pair_weight, pairs_relative), pairs) = best;
        let score = Score {
            relative_ring: self.topology.ring(quad) * 2 * MILLION / self.ideal_quad + pairs_relative,
            pair_ring,
            quad_weight: self.topology.weight(quad),
            pair_weight,
        };
        (score, pairs)
    }

    fn relative(&self, pair: CardSet) -> u64 {
        self.topology.ring(pair) * MILLION / self.ideal_pair
    }
}

/// The choice for each subset of a part.
struct Table {
    part: CardSet,
    choices: Vec<Option<Choice>>,
}

impl Table {
    fn get(&self, cards: CardSet) -> Option<Choice> {
        self.choices[self.slot(cards)]
    }

    fn put(&mut self, cards: CardSet, choice: Option<Choice>) {
        let slot = self.slot(cards);
        self.choices[slot] = choice;
    }

    fn slot(&self, cards: CardSet) -> usize {
        self.part
            .iter()
            .enumerate()
            .filter(|&(_, card)| cards.contains(card))
            .map(|(place, _)| 1 << place)
            .sum()
    }
}
