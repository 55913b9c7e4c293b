//! What is asked for, as far as it was seen.

use std::collections::HashMap;

use super::demand::Demand;

/// Most demands that are told apart; beyond that those that are rarest so far are forgotten.
const MOST: usize = 4096;

/// A count below is as good as none.
const LEAST: f64 = 1.0 / 64.0;

/// How often each demand was seen.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// In the order in which they were first seen.
    seen: Vec<(Demand, f64)>,
    places: HashMap<Demand, usize>,
}

impl Mix {
    /// Counts one more.
    pub fn arrived(&mut self, demand: &Demand) {
        if let Some(place) = self.places.get(demand) {
            self.seen[*place].1 += 1.0;
            return;
        }
        if self.seen.len() >= MOST {
            self.forget_rare();
        }
        self.places.insert(*demand, self.seen.len());
        self.seen.push((*demand, 1.0));
    }

    /// Lets what was seen so far count half. What counts next to nothing is forgotten.
    pub fn fade(&mut self) {
        self.halve(LEAST);
    }

    /// Makes room for others.
    fn forget_rare(&mut self) {
        while self.seen.len() >= MOST {
            self.halve(1.0);
        }
    }

    fn halve(&mut self, least: f64) {
        self.seen.retain_mut(|(_, count)| {
            *count /= 2.0;
            *count >= least
        });
        self.places = self.seen.iter().enumerate().map(|(place, (demand, _))| (*demand, place)).collect();
    }

    /// The demands with their counts, those first seen first.
    pub fn iter(&self) -> impl Iterator<Item = (&Demand, f64)> + Clone {
        self.seen.iter().map(|(demand, count)| (demand, *count))
    }

    /// How many were seen.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.seen.iter().map(|(_, count)| count).sum()
    }

    /// Thousandths of a card that one asks for on average.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let asked: f64 = self.iter().map(|(demand, count)| count * demand.total() as f64).sum();
        asked / self.count().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::demand::ModelSet;

    #[test]
    fn what_was_seen_long_ago_counts_little() {
        let demand = |cpu| Demand::new(cpu, 0, 1, 500, ModelSet::ANY).unwrap();
        let mut mix = Mix::default();
        mix.arrived(&demand(1));
        for _ in 0..6 {
            mix.fade();
            mix.arrived(&demand(2));
        }
        assert_eq!(mix.iter().next(), Some((&demand(1), 1.0 / 64.0)));
        mix.fade();
        assert_eq!(mix.iter().next(), Some((&demand(2), 63.0 / 64.0)));
        mix.arrived(&demand(2));
        assert_eq!(mix.count(), 127.0 / 64.0);
    }

    #[test]
    fn it_stays_small() {
        let demand = |cpu| Demand::new(cpu, 0, 1, 500, ModelSet::ANY).unwrap();
        let mut mix = Mix::default();
        for cpu in 0..20_000 {
            mix.arrived(&demand(cpu));
            mix.arrived(&demand(7));
        }
        assert!(mix.seen.len() <= MOST && mix.places.len() == mix.seen.len());
        let (_, common) = mix.iter().find(|(seen, _)| **seen == demand(7)).unwrap();
        assert!(common > 1_000.0);
        assert_eq!(mix.mean(), 500.0);
    }
}
