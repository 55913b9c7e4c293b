//! How others choose.

use fastrand::Rng;
use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;

use crate::go_gpuallocator::GoGpuAllocator;
use crate::known_machines::KnownMachine;
use crate::simulation::Policy;

/// Which cards of a machine.
enum SetChoice {
    /// The first free ones of this order.
    Order(Vec<usize>),
    GoGpuAllocator(GoGpuAllocator),
}

/// Which machine.
#[derive(Clone, Copy)]
enum NodeChoice {
    /// Any with enough free cards, as kube-scheduler, which does not look at cards in use.
    Any,
    /// The one with the fewest free cards of these.
    Fullest,
}

struct Peer {
    sets: SetChoice,
    nodes: NodeChoice,
    random: Rng,
}

/// The others, with their names.
pub fn all(machine: &KnownMachine, nodes: usize) -> Vec<(&'static str, Box<dyn Policy>)> {
    let by_index = || SetChoice::Order((0..machine.numa.len()).collect());
    let published = || SetChoice::Order(Topology::new(&machine.machine()).groups().order);
    let nvidia = || SetChoice::GoGpuAllocator(GoGpuAllocator::new(machine));
    let peer = |sets, nodes| -> Box<dyn Policy> { Box::new(Peer { sets, nodes, random: Rng::new() }) };
    let mut all = vec![
        ("index", peer(by_index(), NodeChoice::Any)),
        ("published order", peer(published(), NodeChoice::Any)),
        ("go-gpuallocator", peer(nvidia(), NodeChoice::Any)),
    ];
    if nodes > 1 {
        all.push(("go-gpuallocator, fullest node", peer(nvidia(), NodeChoice::Fullest)));
    }
    all
}

impl Policy for Peer {
    fn begin(&mut self) {
        self.random = Rng::with_seed(1);
    }

    fn place(&mut self, _: usize, cards: usize, free: &[CardSet]) -> (usize, CardSet) {
        let fitting = free.iter().enumerate().filter(|(_, free)| free.len() >= cards);
        let node = match self.nodes {
            NodeChoice::Any => {
                let fitting: Vec<usize> = fitting.map(|(node, _)| node).collect();
                fitting[self.random.usize(..fitting.len())]
            }
            NodeChoice::Fullest => fitting.min_by_key(|(_, free)| free.len()).expect("some node fits").0,
        };
        let set = match &mut self.sets {
            SetChoice::Order(order) => {
                let free = order.iter().filter(|card| free[node].contains(**card));
                free.take(cards).map(|card| CardSet::single(*card)).collect()
            }
            SetChoice::GoGpuAllocator(policy) => policy.choose(free[node], cards),
        };
        (node, set)
    }

    fn end(&mut self, _: usize) {}
}
