//! Order and number of a run's arrivals.

use tessera_placement::packing::Node;

use crate::{Random, Trace};

/// Most arrivals of a run.
const MOST: f64 = 20_000_000.0;

/// Nodes and pods in the order of one run, the same for every policy.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The nodes. Ties between nodes go to the first in this order.
    pub nodes: Vec<Node>,
    /// The demand of each arriving pod, as an index, in order of arrival.
    pub pods: Vec<u32>,
}

/// A trace whose pods cannot fill its fleet in a reasonable number of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyArrivals {
    /// No pod asks for cards.
    #[error("no pod of the trace asks for cards")]
    NoCards,
    /// The run would take too long.
    #[error("the pods are too small: more than {MOST} arrivals would be needed to fill the fleet")]
    TooMany,
}

impl Arrivals {
    /// The protocol of the published results of FGD (hkust-adsl/kubernetes-scheduler-simulator, `tune` 1.3): nodes and pods in
    /// random order, then more of the same pods, drawn at random, until they would ask for more than `load` percent of the
    /// fleet's cards. No pod departs. A pod without room on any node is dropped.
    ///
    /// # Errors
    /// More arrivals than can be simulated would be needed.
    pub fn up_to(trace: &Trace, seed: u64, load: u64) -> Result<Self, TooManyArrivals> {
        let wanted = trace.capacity() * load / 100;
        check(wanted as f64 / trace.mean())?;
        let mut random = Random::new(seed.wrapping_mul(7919).wrapping_add(42));
        let mut nodes = trace.nodes().to_vec();
        random.shuffle(&mut nodes);
        let mut pods = trace.pods().to_vec();
        random.shuffle(&mut pods);
        let mut asked: u64 = pods.iter().map(|pod| trace.demand(*pod).total()).sum();
        loop {
            let pod = trace.pods()[random.below(trace.pods().len())];
            asked += trace.demand(pod).total();
            if asked > wanted {
                return Ok(Self { nodes, pods });
            }
            pods.push(pod);
        }
    }
}

/// Checks whether this number of arrivals can be simulated.
pub fn check(arrivals: f64) -> Result<(), TooManyArrivals> {
    match arrivals {
        arrivals if arrivals.is_infinite() => Err(TooManyArrivals::NoCards),
        arrivals if arrivals > MOST => Err(TooManyArrivals::TooMany),
        _ => Ok(()),
    }
}
