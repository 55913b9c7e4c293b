//! Many cards, by simulation: requests come at random, and one without a fit is lost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::Result;
use fastrand::Rng;

use super::managed::Managed;
use super::published::{Allocated, Published};

/// How the node of a request is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    /// The first fitting node.
    First,
    /// Any fitting node, with equal probability: the effect of kube-scheduler's scores, which don't look at devices.
    Random,
    /// The product's choice among the cards of all nodes at once.
    Managed,
}

/// Nodes with the same cards.
pub struct Fleet<'a> {
    published: &'a Published,
    nodes: Vec<Allocated>,
    choice: NodeChoice,
    /// For [`NodeChoice::Managed`].
    managed: Managed,
}

/// Result of many requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Fraction of the requested compute slices accepted, 0 to 1.
    pub accepted: f64,
    /// Standard error of the fraction, from parts of the run.
    pub error: f64,
    /// The same fraction of each part.
    parts: [f64; PARTS],
}

/// Number of parts of a run, for the standard error.
const PARTS: usize = 25;

impl Outcome {
    /// The gain over another choice of the same requests, and the standard error of the gain: far less than the errors
    /// of the two, which have most of their chance in common.
    #[must_use]
    pub fn more_than(&self, other: &Self) -> (f64, f64) {
        let more = self.accepted - other.accepted;
        (more, error(self.parts.iter().zip(&other.parts).map(|(ours, theirs)| ours - theirs - more)))
    }
}

impl<'a> Fleet<'a> {
    /// Empty nodes.
    ///
    /// # Errors
    /// As [`Managed::new`].
    pub fn new(published: &'a Published, nodes: usize, choice: NodeChoice) -> Result<Self> {
        let managed = Managed::new(published)?;
        Ok(Self { published, nodes: vec![published.empty(); nodes], choice, managed })
    }

    fn compute_slices(&self) -> f64 {
        f64::from(self.published.compute_slices()) * self.nodes.len() as f64
    }

    /// Allocates a device of a profile; returns node and device.
    fn allocate(&mut self, profile: usize, random: &mut Rng) -> Option<(usize, usize)> {
        let mut found = None;
        match self.choice {
            NodeChoice::First => {
                for (index, node) in self.nodes.iter().enumerate() {
                    if let Some(device) = self.published.first_fit(node, profile) {
                        found = Some((index, device));
                        break;
                    }
                }
            }
            NodeChoice::Random => {
                // Random nodes until one fits: all fitting nodes are equally likely.
                let mut left: Vec<usize> = (0..self.nodes.len()).collect();
                while !left.is_empty() && found.is_none() {
                    let index = left.swap_remove(random.usize(..left.len()));
                    found =
                        self.published.first_fit(&self.nodes[index], profile).map(|device| (index, device));
                }
            }
            NodeChoice::Managed => {
                self.managed.arrived(profile);
                found = self.managed.choose(self.published, &self.nodes, profile);
            }
        }
        let (node, device) = found?;
        self.published.take(&mut self.nodes[node], device);
        Some((node, device))
    }

    /// Acceptance in the long run at `load` times the cards' capacity: Poisson arrivals, exponential durations.
    /// The same seed gives the same requests, independent of the answers.
    pub fn steady(mut self, requests: &[(usize, f64)], load: f64, arrivals: usize, seed: u64) -> Outcome {
        let (mut random, mut choices) = (Rng::with_seed(seed), Rng::with_seed(!seed));
        let mean: f64 = requests
            .iter()
            .map(|(profile, share)| f64::from(self.published.compute_of(*profile)) * share)
            .sum();
        let rate = load * self.compute_slices() / mean;
        let mut ends: BinaryHeap<Reverse<(Time, usize, usize)>> = BinaryHeap::new();
        let mut now = 0.0;
        // Long enough to forget the empty start.
        let warm_up = (10.0 * rate) as usize;
        let mut parts = [(0u64, 0u64); PARTS];
        for arrival in 0..warm_up + arrivals {
            now += exponential(&mut random) / rate;
            let profile = pick(requests, random.f64());
            let duration = exponential(&mut random);
            while let Some(Reverse((end, node, device))) = ends.peek().copied()
                && end.0 <= now
            {
                ends.pop();
                self.published.give_back(&mut self.nodes[node], device);
                self.managed.departed();
            }
            let taken = self.allocate(profile, &mut choices);
            if let Some((node, device)) = taken {
                ends.push(Reverse((Time(now + duration), node, device)));
            }
            if arrival >= warm_up {
                let part = &mut parts[(arrival - warm_up) * PARTS / arrivals];
                let compute = u64::from(self.published.compute_of(profile));
                part.0 += if taken.is_some() { compute } else { 0 };
                part.1 += compute;
            }
        }
        outcome(&parts)
    }

    /// Acceptance on empty cards until as much was requested as they have, when no claim ends; averaged over
    /// `times` repetitions.
    pub fn filling(mut self, requests: &[(usize, f64)], times: usize, seed: u64) -> Outcome {
        let (mut random, mut choices) = (Rng::with_seed(seed), Rng::with_seed(!seed));
        let goal = self.compute_slices() as u64;
        let new = self.managed.clone();
        let mut parts = [(0u64, 0u64); PARTS];
        for time in 0..times {
            self.nodes.fill(self.published.empty());
            self.managed = new.clone();
            let part = &mut parts[time * PARTS / times];
            let mut requested = 0;
            while requested < goal {
                let profile = pick(requests, random.f64());
                let compute = u64::from(self.published.compute_of(profile));
                requested += compute;
                part.1 += compute;
                part.0 += if self.allocate(profile, &mut choices).is_some() { compute } else { 0 };
            }
        }
        outcome(&parts)
    }
}

/// A float other than NaN.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Time(pub f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

pub(super) fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

pub(super) fn pick(requests: &[(usize, f64)], mut number: f64) -> usize {
    for (profile, share) in requests {
        if number < *share {
            return *profile;
        }
        number -= share;
    }
    // Only rounding errors lead here: shares add up to one.
    requests.last().map_or(0, |(profile, _)| *profile)
}

fn outcome(parts: &[(u64, u64); PARTS]) -> Outcome {
    let fraction = |(accepted, requested): (u64, u64)| accepted as f64 / requested.max(1) as f64;
    let sum = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let accepted = fraction(sum);
    let parts = parts.map(fraction);
    Outcome { accepted, error: error(parts.iter().map(|part| part - accepted)), parts }
}

/// The standard error of the mean, by each part's distance from the mean.
fn error(distances: impl Iterator<Item = f64>) -> f64 {
    let squares: f64 = distances.map(|distance| distance.powi(2)).sum();
    let count = PARTS as f64;
    (squares / (count * (count - 1.0))).sqrt()
}
