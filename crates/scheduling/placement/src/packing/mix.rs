//! Mix of the demand observed so far.

use std::collections::HashMap;

use super::demand::Demand;

/// Limit of distinct demands; beyond it, the rarest so far are dropped.
const MOST: usize = 4096;

/// Counts below this are dropped.
const LEAST: f64 = 1.0 / 64.0;

/// Number of arrivals of each demand.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// In the order of first arrival.
    seen: Vec<(Demand, f64)>,
    places: HashMap<Demand, usize>,
}

impl Mix {
    /// Counts one arrival.
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

    /// Halves all counts, and drops the smallest.
    pub fn fade(&mut self) {
        self.halve(LEAST);
    }

    /// Makes room for another demand.
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

    /// The demands with their counts, in the order of first arrival.
    pub fn iter(&self) -> impl Iterator<Item = (&Demand, f64)> + Clone {
        self.seen.iter().map(|(demand, count)| (demand, *count))
    }

    /// Sum of the counts.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.seen.iter().map(|(_, count)| count).sum()
    }

    /// Average request, in thousandths of a card.
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
