//! Arriving requests.

use fastrand::Rng;

/// Distribution of the number of requested cards.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Name of the mix.
    pub name: &'static str,
    /// Number of cards and percentage.
    shares: Vec<(usize, u32)>,
}

impl Mix {
    /// Both mixes.
    pub fn all() -> [Mix; 2] {
        [
            Mix { name: "50/20/20/10", shares: vec![(1, 50), (2, 20), (4, 20), (8, 10)] },
            Mix { name: "mostly 1", shares: vec![(1, 80), (2, 10), (4, 7), (8, 3)] },
        ]
    }

    /// The mix without requests for more than `cards` cards.
    pub fn up_to(&self, cards: usize) -> Mix {
        let shares = self.shares.iter().copied().filter(|(count, _)| *count <= cards).collect();
        Mix { shares, ..*self }
    }

    fn total(&self) -> u32 {
        self.shares.iter().map(|(_, share)| share).sum()
    }

    /// Mean number of cards per request.
    fn mean(&self) -> f64 {
        let sum: u32 = self.shares.iter().map(|(count, share)| *count as u32 * share).sum();
        f64::from(sum) / f64::from(self.total())
    }

    fn pick(&self, random: &mut Rng) -> usize {
        let mut place = random.u32(0..self.total());
        let hit = self.shares.iter().find(|(_, share)| {
            let is_hit = place < *share;
            place = place.saturating_sub(*share);
            is_hit
        });
        hit.expect("a place below the total").0
    }
}

/// A request for whole cards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Arrival, in mean service times.
    pub at: f64,
    /// Number of requested cards.
    pub cards: usize,
    /// Service time, in mean service times.
    pub service: f64,
}

/// `count` requests in order: Poisson arrivals and exponential service times with mean 1. If each request were served at once,
/// `busy` cards would be in use on average.
pub fn arrivals(mix: &Mix, busy: f64, count: usize, seed: u64) -> Vec<Request> {
    let mut random = Rng::with_seed(seed);
    let rate = busy / mix.mean();
    let mut at = 0.0;
    let exponential = |random: &mut Rng| -(1.0 - random.f64()).ln();
    (0..count)
        .map(|_| {
            at += exponential(&mut random) / rate;
            Request { at, cards: mix.pick(&mut random), service: exponential(&mut random) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_asked_for_as_is_said() {
        for mix in Mix::all() {
            let requests = arrivals(&mix, 13.6, 200_000, 7);
            let asked: f64 = requests.iter().map(|request| request.cards as f64 * request.service).sum();
            let busy = asked / requests.last().unwrap().at;
            assert!((busy / 13.6 - 1.0).abs() < 0.02, "{}: {busy}", mix.name);
            let singles = requests.iter().filter(|request| request.cards == 1).count() as f64 / 200_000.0;
            let wanted = f64::from(mix.shares[0].1) / 100.0;
            assert!((singles - wanted).abs() < 0.01, "{}: {singles}", mix.name);
        }
        assert!(arrivals(&Mix::all()[0].up_to(4), 1.0, 1_000, 1).iter().all(|request| request.cards <= 4));
    }
}
