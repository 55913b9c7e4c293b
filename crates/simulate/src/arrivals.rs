//! Who arrives when.

use tessera_placement::packing::Node;

use crate::{Random, Trace};

/// Most arrivals of a run.
const MOST: f64 = 20_000_000.0;

/// Nodes and pods in the order of one run, alike for every policy.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The nodes, in the order in which ties between them are decided.
    pub nodes: Vec<Node>,
    /// The pods as they come, by the number of their demand.
    pub pods: Vec<u32>,
}

/// A trace that would never fill its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyArrivals {
    /// No pod asks for cards.
    #[error("no pod of the trace asks for cards")]
    NoCards,
    /// It would take too long.
    #[error("the pods ask for so little that more than {MOST} would have to arrive to fill the fleet")]
    TooMany,
}

impl Arrivals {
    /// The protocol of the published results of FGD (hkust-adsl/kubernetes-scheduler-simulator, `tune` 1.3): nodes and pods in
    /// random order, then more of the same pods, drawn at random, until they would ask for more than `load` percent of the
    /// fleet's cards. Nobody leaves, and who finds no room is gone.
    ///
    /// # Errors
    /// When that would take too many.
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

/// Whether so many arrivals can be simulated.
pub fn check(arrivals: f64) -> Result<(), TooManyArrivals> {
    match arrivals {
        arrivals if arrivals.is_infinite() => Err(TooManyArrivals::NoCards),
        arrivals if arrivals > MOST => Err(TooManyArrivals::TooMany),
        _ => Ok(()),
    }
}
