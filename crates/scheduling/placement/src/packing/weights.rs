//! Weights of the terms, by the rate of departures.

/// Arrivals between two looks.
pub const LOOK_EVERY: u64 = 64;

/// Weights of the terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Of open nodes: for eight cards left free on a node after placing the pod.
    pub level: f64,
    /// Of stranded cards.
    pub stranding: f64,
    /// Of [`super::card_prices::CardPrices::expected_of_rest`] in place of the best content.
    pub expected: f64,
}

/// Without departures: the fleet fills up once.
const FILLING: Weights = Weights { level: 0.1, stranding: 1.0, expected: 0.0 };

/// With as many departures as arrivals. Found on the openb trace with departures: with the weights above, a steady state is 1 to
/// 2.5 points worse.
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

/// Departures per arrival: a moving average.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    since: u64,
    average: f64,
    /// The average behind the current weights.
    used: f64,
}

impl Departures {
    /// Counts one departure.
    pub fn departed(&mut self) {
        self.since += 1;
    }

    /// Call every [`LOOK_EVERY`] arrivals. Returns whether the weights changed.
    pub fn look(&mut self) -> bool {
        let by_arrival = (std::mem::take(&mut self.since) as f64 / LOOK_EVERY as f64).min(1.5);
        self.average = self.average * 0.95 + 0.05 * by_arrival;
        let average = self.average.min(1.0);
        // Small changes do not justify recomputing everything.
        let is_changed = (average - self.used).abs() > 0.1 || average < 0.02 && self.used > 0.0;
        if is_changed {
            self.used = average;
        }
        is_changed
    }

    /// Current weights.
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
