//! How much each term counts, by how many pods leave.

/// Arrivals between two looks.
pub const LOOK_EVERY: u64 = 64;

/// Weights of the terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of open nodes: for eight free cards on a node after the pod is on it.
    pub level: f64,
    /// Of what is stranded.
    pub stranding: f64,
    /// Of [`super::card_prices::CardPrices::expected_of_rest`] in place of the best that fits.
    pub expected: f64,
}

/// Nobody leaves: the fleet fills up once.
const FILLING: Weights = Weights { level: 0.1, stranding: 1.0, expected: 0.0 };

/// As many leave as come. Found on the openb trace with departures: with the weights above, a steady state is 1 to 2.5 points
/// worse.
const STEADY: Weights = Weights { level: 0.7, stranding: 0.5, expected: 0.7 };

impl Weights {
    fn at(departures: f64) -> Self {
        let between = |filling: f64, steady: f64| filling + (steady - filling) * departures;
        Self {
            level: between(FILLING.level, STEADY.level),
            stranding: between(FILLING.stranding, STEADY.stranding),
            expected: between(FILLING.expected, STEADY.expected),
        }
    }
}

/// How many pods leave for each that arrives: a moving average.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    since: u64,
    average: f64,
    /// The average that the weights are for.
    used: f64,
}

impl Departures {
    /// One left.
    pub fn departed(&mut self) {
        self.since += 1;
    }

    /// To be called every [`LOOK_EVERY`] arrivals. Returns whether the weights changed.
    pub fn look(&mut self) -> bool {
        let by_arrival = (std::mem::take(&mut self.since) as f64 / LOOK_EVERY as f64).min(1.5);
        self.average = self.average * 0.95 + 0.05 * by_arrival;
        let average = self.average.min(1.0);
        // Small changes are not worth computing everything anew.
        let is_changed = (average - self.used).abs() > 0.1 || average < 0.02 && self.used > 0.0;
        if is_changed {
            self.used = average;
        }
        is_changed
    }

    /// The weights for it.
    pub fn weights(&self) -> Weights {
        Weights::at(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_departures_in_steps() {
        let mut departures = Departures::default();
        assert!(!departures.look());
        assert_eq!(departures.weights(), FILLING);
        let looks = 200;
        let changes = (0..looks).filter(|_| {
            (0..LOOK_EVERY).for_each(|_| departures.departed());
            departures.look()
        });
        assert!(changes.count() <= 10);
        assert!(departures.weights().level > 0.6 && departures.weights().expected > 0.6);
        (0..looks).for_each(|_| {
            departures.look();
        });
        assert!(departures.weights().level < 0.12);
    }
}
