//! Several cards, simulated.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::devices::Card;
use super::random::Random;

/// A partition that ends.
struct Departure {
    at: f64,
    card: usize,
    mask: u32,
}

impl PartialEq for Departure {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Departure {}

impl PartialOrd for Departure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Departure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at)
    }
}

/// The first placement that is free, card by card.
fn first_fit(placements: &[u32], taken: &[u32]) -> Option<(usize, u32)> {
    taken.iter().enumerate().find_map(|(card, taken)| {
        let mask = placements.iter().find(|mask| *mask & taken == 0)?;
        Some((card, *mask))
    })
}

/// Accepted compute slices as a part of those asked for, with requests that come at random, stay for a time of mean 1, and
/// are lost where they do not fit.
pub fn steady(
    card: &Card,
    order: &[Vec<u32>],
    shares: &[f64],
    load: f64,
    cards: usize,
    requests: u32,
) -> f64 {
    let compute = |profile: usize| f64::from(card.profiles[profile].compute_slices);
    let mean: f64 = shares.iter().enumerate().map(|(profile, share)| share * compute(profile)).sum();
    let rate = load * f64::from(card.compute_slices) * cards as f64 / mean;
    let mut random = Random::new(1);
    let mut taken = vec![0u32; cards];
    let mut departures = BinaryHeap::new();
    let (mut now, mut offered, mut accepted) = (0.0, 0.0, 0.0);
    let warm_up = requests / 20;
    for request in 0..requests {
        now += random.exponential() / rate;
        let profile = random.weighted(shares);
        // Drawn whether it fits or not, so that all policies see the same requests.
        let stays = random.exponential();
        while let Some(Reverse(next)) = departures.peek() {
            let Departure { at, card, mask } = next;
            if *at > now {
                break;
            }
            taken[*card] &= !mask;
            departures.pop();
        }
        let found = first_fit(&order[profile], &taken);
        if let Some((card, mask)) = found {
            taken[card] |= mask;
            departures.push(Reverse(Departure { at: now + stays, card, mask }));
        }
        if request >= warm_up {
            offered += compute(profile);
            accepted += if found.is_some() { compute(profile) } else { 0.0 };
        }
    }
    accepted / offered
}

/// Accepted compute slices as a part of those asked for, until as much was asked for as there is, and nothing ends.
pub fn filling(card: &Card, order: &[Vec<u32>], shares: &[f64], cards: usize, times: u32) -> f64 {
    let there = card.compute_slices * u32::try_from(cards).unwrap_or(u32::MAX);
    let (mut offered, mut accepted) = (0u64, 0u64);
    for seed in 0..times {
        let mut random = Random::new(u64::from(seed));
        let mut taken = vec![0u32; cards];
        let mut asked = 0;
        while asked < there {
            let profile = random.weighted(shares);
            let compute = card.profiles[profile].compute_slices;
            asked += compute;
            if let Some((card, mask)) = first_fit(&order[profile], &taken) {
                taken[card] |= mask;
                accepted += u64::from(compute);
            }
        }
        offered += u64::from(asked);
    }
    accepted as f64 / offered as f64
}
