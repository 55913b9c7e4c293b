//! Summary of one policy's simulations.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;

use crate::known_machines::KnownMachine;
use crate::simulation::Fate;

/// Mean over the seeds, and the standard deviation between seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    mean: f64,
    deviation: f64,
}

/// One policy in one cell of the table.
#[derive(Serialize)]
pub struct Report {
    machine: String,
    nodes: usize,
    mix: &'static str,
    load: f64,
    policy: String,
    /// Bandwidth of the ring through the cards, relative to the best ring of as many cards in the empty machine. Mean over
    /// requests served with two or more cards.
    ring: Spread,
    /// `ring` by number of cards.
    ring_of: BTreeMap<usize, Spread>,
    /// Served fraction of the requested card time.
    served: Spread,
    /// Mean wait of requests served with cards, in mean service times.
    wait: Spread,
    /// `wait` by number of cards.
    wait_of: BTreeMap<usize, Spread>,
}

/// Best rings of the empty machine, in MB/s by number of cards.
pub struct Ideal {
    topology: Topology,
    rings: BTreeMap<usize, u64>,
}

impl Ideal {
    /// Tries all sets of 2, 4 and 8 cards of the machine.
    pub fn of(machine: &KnownMachine) -> Self {
        let topology = Topology::new(&machine.machine());
        let all = CardSet::first(machine.numa.len());
        let best = |size: usize| all.subsets(size).map(|set| topology.ring(set)).max();
        let rings = [2, 4, 8].into_iter().filter_map(|size| Some((size, best(size)?))).collect();
        Self { topology, rings }
    }

    fn relative(&self, set: CardSet) -> Option<f64> {
        Some(self.topology.ring(set) as f64 / *self.rings.get(&set.len())? as f64)
    }
}

impl Report {
    /// Report over one simulation per seed.
    pub fn of(
        machine: &KnownMachine,
        nodes: usize,
        (mix, load): (&'static str, f64),
        policy: &str,
        ideal: &Ideal,
        runs: &[Vec<Fate>],
    ) -> Self {
        let ring = |fate: &Fate| ideal.relative(fate.got?.0);
        let wait = |fate: &Fate| Some(fate.got?.1);
        let served = |run: &Vec<Fate>| {
            let time = |fate: &&Fate| fate.request.cards as f64 * fate.request.service;
            let got = run.iter().filter(|fate| fate.got.is_some());
            got.map(|fate| time(&fate)).sum::<f64>() / run.iter().map(|fate| time(&fate)).sum::<f64>()
        };
        Report {
            machine: machine.name.clone(),
            nodes,
            mix,
            load,
            policy: policy.to_owned(),
            ring: over(runs, |_| true, ring).unwrap_or(Spread { mean: 1.0, deviation: 0.0 }),
            ring_of: by_cards(runs, ring),
            served: Spread::of(&runs.iter().map(served).collect::<Vec<f64>>()),
            wait: over(runs, |_| true, wait).unwrap_or(Spread { mean: 0.0, deviation: 0.0 }),
            wait_of: by_cards(runs, wait),
        }
    }
}

fn by_cards(runs: &[Vec<Fate>], value: impl Fn(&Fate) -> Option<f64>) -> BTreeMap<usize, Spread> {
    let of = |cards: usize| Some((cards, over(runs, |fate| fate.request.cards == cards, &value)?));
    [1, 2, 4, 8].into_iter().filter_map(of).collect()
}

/// `None` if some run has no request with a value.
fn over(
    runs: &[Vec<Fate>],
    counts: impl Fn(&Fate) -> bool,
    value: impl Fn(&Fate) -> Option<f64>,
) -> Option<Spread> {
    let mean = |run: &Vec<Fate>| {
        let values: Vec<f64> = run.iter().filter(|fate| counts(fate)).filter_map(&value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Some(Spread::of(&runs.iter().map(mean).collect::<Option<Vec<f64>>>()?))
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Spread { mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_between_seeds() {
        assert_eq!(Spread::of(&[1.0, 3.0]), Spread { mean: 2.0, deviation: 2f64.sqrt() });
        assert_eq!(Spread::of(&[5.0]), Spread { mean: 5.0, deviation: 0.0 });
    }
}
