//! Cards expected to be left without CPU.

use std::collections::BTreeMap;

/// Steps of value per card.
const STEPS: usize = 60;

/// Limit of distinguished cores.
const MOST_CORES: u64 = 512;

/// For pods not fitting for lack of CPU: the fraction whose cards are stranded rather than used by other pods.
const LOST: f64 = 0.5;

/// Cards expected to be stranded on a node if filled up with random pods of the mix, by the value of its free cards and by its free
/// CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Stranding {
    cards: usize,
    cores: usize,
    /// By value in steps, then by cores.
    expected: Vec<f32>,
}

/// A pod's use per card: value in steps, and cores.
type Item = (usize, usize);

impl Stranding {
    /// For nodes of up to so many cards and thousandths of a core. `mix` has for each demand: the value taken of each card, the CPU
    /// per card in thousandths of a core, and the number of cards requested.
    #[must_use]
    pub fn new(cards: usize, cpu_milli: u64, mix: impl IntoIterator<Item = (f64, u64, f64)>) -> Self {
        let mut items: BTreeMap<Item, f64> = BTreeMap::new();
        for (value, cpu_milli, amount) in mix {
            let steps = (value * STEPS as f64).round() as usize;
            if steps > 0 {
                let cores = cpu_milli.div_ceil(1000).min(MOST_CORES + 1) as usize;
                *items.entry((steps, cores)).or_default() += amount;
            }
        }
        let all: f64 = items.values().sum();
        let items: Vec<(Item, f64)> = items.into_iter().map(|(item, amount)| (item, amount / all)).collect();
        let cores = (cpu_milli / 1000).min(MOST_CORES) as usize + 1;
        let mut table = Self { cards, cores, expected: vec![0.0; (cards * STEPS + 1) * cores] };
        if items.is_empty() {
            return table;
        }
        for value in 1..=cards * STEPS {
            for cores in 0..table.cores {
                table.expected[value * table.cores + cores] = table.one(&items, value, cores);
            }
        }
        table
    }

    /// One entry, computed from entries of less value.
    fn one(&self, items: &[(Item, f64)], value: usize, cores: usize) -> f32 {
        let rest = |value: usize, cores: usize| f64::from(self.expected[value * self.cores + cores]);
        let (mut sum, mut too_few_cores) = (0.0, 0.0);
        for ((steps, needed), part) in items {
            // An item worth more than the remaining value takes all of it, with CPU in proportion.
            let (steps, needed) =
                if *steps <= value { (*steps, *needed) } else { (value, (needed * value).div_ceil(*steps)) };
            if needed <= cores {
                sum += part * rest(value - steps, cores - needed);
            } else {
                too_few_cores += part;
                sum += (1.0 - LOST) * part * (rest(value - steps, cores) + steps as f64 / STEPS as f64);
            }
        }
        let in_all = value as f64 / STEPS as f64;
        let others = 1.0 - LOST * too_few_cores;
        if others < 1e-9 { in_all as f32 } else { (sum / others).min(in_all) as f32 }
    }

    /// Cards expected to be stranded on a node whose free cards have the value `value`, in cards.
    #[must_use]
    pub fn of(&self, value: f64, cpu_milli: u64) -> f64 {
        let value = ((value * STEPS as f64).round() as usize).min(self.cards * STEPS);
        let cores = ((cpu_milli / 1000) as usize).min(self.cores - 1);
        f64::from(self.expected[value * self.cores + cores])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_without_cpu_are_stranded() {
        // Whole cards with 10 cores each.
        let table = Stranding::new(4, 64_000, [(1.0, 10_000, 5.0)]);
        assert_eq!(table.of(4.0, 0), 4.0);
        assert_eq!(table.of(4.0, 40_000), 0.0);
        assert_eq!(table.of(4.0, 20_000), 2.0);
        assert_eq!(table.of(0.0, 0), 0.0);
        // The other pods need less CPU.
        let mixed = Stranding::new(4, 64_000, [(1.0, 10_000, 5.0), (1.0, 1_000, 5.0)]);
        assert!(mixed.of(4.0, 20_000) < 2.0 && mixed.of(4.0, 20_000) > 0.0);
    }

    #[test]
    fn without_demand_nothing_is_stranded() {
        assert_eq!(Stranding::new(8, 1_000_000, []).of(8.0, 0), 0.0);
    }
}
