//! Policies of others.

use fastrand::Rng;
use tessera_inventory::Topology;
use tessera_inventory::topology::CardSet;

use crate::go_gpuallocator::GoGpuAllocator;
use crate::known_machines::KnownMachine;
use crate::simulation::Policy;

/// How cards of a machine are chosen.
enum SetChoice {
    /// The first free cards in this order.
    Order(Vec<usize>),
    GoGpuAllocator(GoGpuAllocator),
}

/// How the machine is chosen.
#[derive(Clone, Copy)]
enum NodeChoice {
    /// Any machine with enough free cards, like kube-scheduler, whose scores ignore cards in use.
    Any,
    /// The machine with the fewest free cards among these.
    Fullest,
}

struct Peer {
    sets: SetChoice,
    nodes: NodeChoice,
    random: Rng,
}

/// All peer policies with their names.
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
