//! One card, exactly: its states are the sets of partitions able to exist together. A policy's acceptance in the long
//! run follows from them without simulation, and so does the maximum over all policies.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::published::{Allocated, Published};

/// The choice of a partition for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first fitting one, as in kube-scheduler.
    FirstFit,
    /// The best one for future requests, given the mix and the load. Accepts every fitting request.
    Best,
}

/// The states of one card under one mix.
pub struct OneCard {
    /// Compute slices of the card.
    compute: f64,
    /// The requests: compute slices, and share of all requests.
    requests: Vec<(f64, f64)>,
    states: Vec<State>,
}

/// Indexes of other states.
struct State {
    /// For each request, the states after accepting it, in the order of trying; empty where none fits.
    after: Vec<Vec<usize>>,
    /// The states after the end of each partition.
    before: Vec<usize>,
}

/// Distance of the gain's bounds, relative to the gain, for the end of the iteration.
const PRECISION: f64 = 1e-9;

impl OneCard {
    /// All states reachable by these requests. The empty card is the first.
    ///
    /// # Errors
    /// When the node has more partitions than a word has bits.
    pub fn new(published: &Published, requests: &[(usize, f64)]) -> Result<Self> {
        ensure!(published.devices().len() <= 64, "more partitions than one card has");
        let mut known: HashMap<u64, usize> = HashMap::from([(0, 0)]);
        let mut sets = vec![(0u64, published.empty())];
        let mut states = Vec::new();
        while states.len() < sets.len() {
            let (set, node): (u64, Allocated) = sets[states.len()].clone();
            let mut after = Vec::with_capacity(requests.len());
            for (profile, _) in requests {
                let mut following = Vec::new();
                for device in published.of_profile(*profile) {
                    if published.fits(&node, *device) {
                        let next = set | 1 << device;
                        let index = *known.entry(next).or_insert_with(|| {
                            let mut node = node.clone();
                            published.take(&mut node, *device);
                            sets.push((next, node));
                            sets.len() - 1
                        });
                        following.push(index);
                    }
                }
                after.push(following);
            }
            states.push(State { after, before: Vec::new() });
        }
        for (set, index) in &known {
            let before = (0..64).filter(|device| set & 1 << device != 0);
            // Any subset of a possible set is possible.
            states[*index].before = before.map(|device| known[&(set & !(1 << device))]).collect();
        }
        let requests = requests
            .iter()
            .map(|(profile, share)| (f64::from(published.compute_of(*profile)), *share))
            .collect();
        Ok(Self { compute: published.compute_slices().into(), requests, states })
    }

    /// Number of states.
    #[cfg(test)]
    pub fn state_count(&self) -> usize {
        self.states.len()
    }

    /// Fraction of the requested compute slices accepted in the long run. Requests come at random times (Poisson) at
    /// `load` times the card's capacity, each stays for a random time (exponential), and one without a fit is lost.
    pub fn steady(&self, policy: Policy, load: f64) -> f64 {
        let mean = self.mean_compute();
        let arrivals = load * self.compute / mean;
        let most = self.states.iter().map(|state| state.before.len()).max().unwrap_or(0);
        // Uniformisation: a step is an arrival, the end of one of the partitions, or nothing.
        let rate = arrivals + most as f64;
        let mut values = vec![0.0; self.states.len()];
        loop {
            let next: Vec<f64> = self
                .states
                .iter()
                .enumerate()
                .map(|(index, state)| {
                    let stay = values[index];
                    let arrival = self.expected(state, policy, stay, &values);
                    let ends: f64 = state.before.iter().map(|before| values[*before] - stay).sum();
                    stay + (arrivals * (arrival - stay) + ends) / rate
                })
                .collect();
            let gains = next.iter().zip(&values).map(|(next, value)| next - value);
            let (low, high) = gains.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), gain| {
                (low.min(gain), high.max(gain))
            });
            if high - low <= PRECISION * high {
                return (low + high) / 2.0 * rate / (arrivals * mean);
            }
            let origin = next[0];
            values = next.into_iter().map(|value| value - origin).collect();
        }
    }

    /// Fraction of the requested compute slices accepted on an empty card until the requests amount to the card's
    /// capacity, when no claim ends.
    pub fn filling(&self, policy: Policy) -> f64 {
        let goal = self.compute as usize;
        // Expected compute slices, by the amount requested so far: accepted, and requested in all.
        let mut accepted = vec![vec![0.0; self.states.len()]; goal];
        let mut requested = vec![0.0; goal];
        for already in (0..goal).rev() {
            let mut of_states = vec![0.0; self.states.len()];
            for (place, (compute, share)) in self.requests.iter().enumerate() {
                let later = already + *compute as usize;
                let nothing = Vec::new();
                let rest = accepted.get(later).unwrap_or(&nothing);
                let value = |index: usize| rest.get(index).copied().unwrap_or(0.0);
                for (index, of_state) in of_states.iter_mut().enumerate() {
                    let following = &self.states[index].after[place];
                    let best = choose(following, policy, value).map_or(value(index), |best| compute + best);
                    *of_state += share * best;
                }
                requested[already] += share * (compute + requested.get(later).copied().unwrap_or(0.0));
            }
            accepted[already] = of_states;
        }
        accepted[0][0] / requested[0]
    }

    fn mean_compute(&self) -> f64 {
        self.requests.iter().map(|(compute, share)| compute * share).sum()
    }

    /// The value after one arrival.
    fn expected(&self, state: &State, policy: Policy, stay: f64, values: &[f64]) -> f64 {
        let each = self.requests.iter().zip(&state.after).map(|((compute, share), following)| {
            let taken = choose(following, policy, |index| values[index]);
            share * taken.map_or(stay, |value| compute + value)
        });
        each.sum()
    }
}

/// The value of the state chosen by a policy; `None` if there is none.
fn choose(following: &[usize], policy: Policy, value: impl Fn(usize) -> f64) -> Option<f64> {
    let mut values = following.iter().map(|index| value(*index));
    match policy {
        Policy::FirstFit => values.next(),
        Policy::Best => values.reduce(f64::max),
    }
}
