//! The order of publication: kube-scheduler takes the first devices with room, so neighbours in the list should be
//! neighbours on NVLink.

use std::cmp::Reverse;

use super::align::Nested;
use super::{CardSet, Topology};

/// The ways to write one group as a run of cards.
type Arrangements = Vec<Vec<usize>>;

/// Positions of all cards: groups stay together, the fastest ring first.
pub fn find(topology: &Topology, nested: &Nested) -> Vec<usize> {
    let mut quads = nested.quads.clone();
    quads.sort_by_key(|&quad| Reverse(topology.ring(quad)));
    let equal_quads = quads.windows(2).all(|two| topology.ring(two[0]) == topology.ring(two[1]));

    let in_quads: CardSet = quads.iter().copied().collect();
    let pairs = nested.pairs.iter().copied().filter(|pair| !in_quads.includes(*pair));
    let in_pairs: CardSet = nested.pairs.iter().copied().collect();
    let singles = (topology.all() - in_quads - in_pairs).iter().map(|card| vec![vec![card]]);
    let blocks: Vec<Arrangements> = quads
        .iter()
        .map(|&quad| arrangements_of_quad(quad, nested))
        .chain(pairs.map(both_ways))
        .chain(singles)
        .collect();

    match &blocks[..] {
        [one, two] if equal_quads && one[0].len() == two[0].len() => {
            best(topology, joined(one, two).chain(joined(two, one)))
        }
        [one, two] => best(topology, joined(one, two)),
        // Too many blocks to try all arrangements: greedily, each next block is the one with the best fit.
        blocks => blocks.iter().fold(Vec::new(), |begun, block| {
            best(topology, block.iter().map(|next| [begun.as_slice(), next].concat()))
        }),
    }
}

fn both_ways(pair: CardSet) -> Arrangements {
    let (one, other) = pair.ends();
    vec![vec![one, other], vec![other, one]]
}

/// The pairs of a quad in either order, each either way.
fn arrangements_of_quad(quad: CardSet, nested: &Nested) -> Arrangements {
    let pairs: Vec<Arrangements> =
        nested.pairs.iter().filter(|pair| quad.includes(**pair)).map(|&pair| both_ways(pair)).collect();
    match &pairs[..] {
        [one, two] => joined(one, two).chain(joined(two, one)).collect(),
        _ => vec![quad.iter().collect()],
    }
}

fn joined(one: &Arrangements, two: &Arrangements) -> impl Iterator<Item = Vec<usize>> {
    one.iter().flat_map(move |first| two.iter().map(move |second| [first.as_slice(), second].concat()))
}

/// The run whose neighbours are closest, then whose cards within reach of four are; the lexicographically lowest of
/// equals.
fn best(topology: &Topology, runs: impl Iterator<Item = Vec<usize>>) -> Vec<usize> {
    let closeness = |run: &[usize], reach: usize| -> u64 {
        (0..run.len())
            .flat_map(|at| (at + 1..run.len().min(at + reach)).map(move |after| (at, after)))
            .map(|(at, after)| topology.pair_weight(run[at], run[after]))
            .sum()
    };
    runs.min_by_key(|run| (Reverse(closeness(run, 2)), Reverse(closeness(run, 4)), run.clone()))
        .unwrap_or_default()
}
