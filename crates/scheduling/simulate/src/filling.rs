//! A run in which pods only arrive, until the fleet is full.

use tessera_placement::packing::{Demand, Node, Place};

use crate::{Arrivals, Policy, PolicyName, Random, Trace};

/// Loads at which the run is measured: cards requested by the pods that arrived so far, in percent of the fleet's cards.
pub const LOADS: [u64; 4] = [80, 95, 100, 130];

/// Result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Filling {
    /// Percent of the cards allocated at each of [`LOADS`].
    pub allocated: [f64; 4],
    /// Percent of the free cards that a typical pod cannot use, at each of [`LOADS`].
    pub fragmentation: [f64; 4],
}

impl Filling {
    /// Runs all arrivals. `seed` drives the policy's random choices.
    #[must_use]
    pub fn run(trace: &Trace, arrivals: &Arrivals, policy: PolicyName, seed: u64) -> Self {
        Self::watched(trace, arrivals, policy, seed, &mut |_| {})
    }

    /// Like `run`, but calls `placed` with each pod's place as the pod arrives.
    pub fn watched(
        trace: &Trace,
        arrivals: &Arrivals,
        policy: PolicyName,
        seed: u64,
        placed: &mut dyn FnMut(Option<Place>),
    ) -> Self {
        let typical = trace.typical_pods();
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(5));
        let mut nodes = arrivals.nodes.clone();
        let mut policy = policy.start(trace, &nodes);
        let capacity = trace.capacity();
        let (mut asked, mut allocated, mut reached) = (0, 0, 0);
        let mut found = Self::default();
        let mut measure = |nodes: &[Node], allocated: u64, reached: &mut usize| {
            found.allocated[*reached] = 100.0 * allocated as f64 / capacity as f64;
            found.fragmentation[*reached] = typical.fragmentation(nodes);
            *reached += 1;
        };
        for pod in &arrivals.pods {
            let demand = trace.demand(*pod);
            asked += demand.total();
            let place = place(&mut *policy, &mut nodes, demand, &mut random);
            placed(place);
            allocated += place.map_or(0, |_| demand.total());
            while reached < LOADS.len() && asked * 100 >= LOADS[reached] * capacity {
                measure(&nodes, allocated, &mut reached);
            }
            if reached == LOADS.len() {
                break;
            }
        }
        // The last load is not quite reached: the next pod would have requested more.
        while reached < LOADS.len() {
            measure(&nodes, allocated, &mut reached);
        }
        found
    }
}

/// Places one pod.
pub fn place(
    policy: &mut dyn Policy,
    nodes: &mut [Node],
    demand: &Demand,
    random: &mut Random,
) -> Option<Place> {
    let place = policy.choose(nodes, demand, random)?;
    assert!(nodes[place.node].take(demand, place.cards), "a policy chose what is not free");
    policy.placed(nodes, &place, demand);
    Some(place)
}
