//! A run in which pods arrive and depart.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tessera_placement::packing::Place;

use crate::arrivals::check;
use crate::filling::place;
use crate::{PolicyName, Random, TooManyArrivals, Trace};

/// Arrivals of a run; the second half is measured.
const ARRIVALS: usize = 80_000;

/// Result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Percent of the cards allocated, mean over the second half of the arrivals.
    pub allocated: f64,
    /// Refused percentage of the cards requested in the second half.
    pub refused: f64,
}

impl Steady {
    /// Draws 80,000 pods at random from the trace, one arrival in each unit of time. Lifetimes are exponentially distributed,
    /// with a mean at which the pods would hold `load` percent of the fleet's cards if none were refused.
    ///
    /// # Errors
    /// The trace requests no cards.
    pub fn run(trace: &Trace, policy: PolicyName, load: f64, seed: u64) -> Result<Self, TooManyArrivals> {
        Self::watched(trace, policy, load, seed, &mut |_| {})
    }

    /// Like `run`, but calls `placed` with each pod's place as the pod arrives.
    ///
    /// # Errors
    /// The trace requests no cards.
    pub fn watched(
        trace: &Trace,
        policy: PolicyName,
        load: f64,
        seed: u64,
        placed: &mut dyn FnMut(Option<Place>),
    ) -> Result<Self, TooManyArrivals> {
        let stay = load / 100.0 * trace.capacity() as f64 / trace.mean();
        check(stay)?;
        let mut random = Random::new(seed.wrapping_mul(7919).wrapping_add(42));
        let mut nodes = trace.nodes().to_vec();
        random.shuffle(&mut nodes);
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(5));
        let pods: Vec<u32> = (0..ARRIVALS).map(|_| trace.pods()[random.below(trace.pods().len())]).collect();
        let stays: Vec<u64> =
            (0..ARRIVALS).map(|_| (-libm::log(1.0 - random.unit()) * stay) as u64 + 1).collect();
        let mut policy = policy.start(trace, &nodes);
        let mut leaving: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut places: Vec<Option<Place>> = vec![None; ARRIVALS];
        let (mut allocated, mut sum, mut asked, mut refused) = (0_u64, 0_u64, 0_u64, 0_u64);
        for (number, pod) in pods.iter().enumerate() {
            while let Some(Reverse((time, left))) = leaving.peek().copied()
                && time <= number as u64
            {
                leaving.pop();
                let demand = trace.demand(pods[left]);
                if let Some(place) = places[left].take() {
                    nodes[place.node].give_back(demand, place.cards);
                    policy.departed(&nodes, &place, demand);
                    allocated -= demand.total();
                }
            }
            let is_measured = number >= ARRIVALS / 2;
            sum += if is_measured { allocated } else { 0 };
            let demand = trace.demand(*pod);
            asked += if is_measured { demand.total() } else { 0 };
            let place = place(&mut *policy, &mut nodes, demand, &mut random);
            placed(place);
            match place {
                Some(place) => {
                    allocated += demand.total();
                    places[number] = Some(place);
                    leaving.push(Reverse((number as u64 + stays[number], number)));
                }
                None => refused += if is_measured { demand.total() } else { 0 },
            }
        }
        let mean = sum as f64 / (ARRIVALS / 2) as f64;
        Ok(Self {
            allocated: 100.0 * mean / trace.capacity() as f64,
            refused: 100.0 * refused as f64 / asked.max(1) as f64,
        })
    }
}
