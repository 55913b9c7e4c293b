//! The decision loop of this project: pods and claims go in, allocations come out.

use std::collections::HashMap;

use tessera_api::gpu_pool::TopologyPolicy;
use tessera_inventory::topology::CardSet;

use crate::known_machines::KnownMachine;
use crate::known_nodes::KnownNodes;
use crate::simulation::Policy;

/// Our policy on `nodes` machines.
pub fn policy(machine: &KnownMachine, nodes: usize) -> Box<dyn Policy> {
    if nodes == 1 {
        let node = KnownNodes::new(machine, 1, TopologyPolicy::Preferred);
        return Box::new(One { node, free: CardSet::first(machine.numa.len()), known: HashMap::new() });
    }
    Box::new(Several { machine: machine.clone(), nodes, loop_of_all: None })
}

/// One machine: the choice depends only on the free cards and the request, so the loop is asked once per combination.
struct One {
    node: KnownNodes,
    /// Free cards in the loop's current state.
    free: CardSet,
    known: HashMap<(CardSet, usize), CardSet>,
}

impl Policy for One {
    fn begin(&mut self) {}

    fn place(&mut self, _: usize, cards: usize, free: &[CardSet]) -> (usize, CardSet) {
        let free = free[0];
        if let Some(known) = self.known.get(&(free, cards)) {
            return (0, *known);
        }
        let holder = |card: usize| format!("holder-of-{card}");
        (self.free - free).iter().for_each(|card| self.node.take(&holder(card), 0, CardSet::single(card)));
        (free - self.free).iter().for_each(|card| self.node.end(&holder(card)));
        self.free = free;
        let (_, set) = self.node.ask("asks", cards).expect("there are enough free cards");
        self.node.end("asks");
        self.known.insert((free, cards), set);
        (0, set)
    }

    fn end(&mut self, _: usize) {}
}

/// Several machines. The loop also chooses the machine.
struct Several {
    machine: KnownMachine,
    nodes: usize,
    loop_of_all: Option<KnownNodes>,
}

impl Policy for Several {
    fn begin(&mut self) {
        self.loop_of_all = Some(KnownNodes::new(&self.machine, self.nodes, TopologyPolicy::Preferred));
    }

    fn place(&mut self, id: usize, cards: usize, _: &[CardSet]) -> (usize, CardSet) {
        let nodes = self.loop_of_all.as_mut().expect("begun");
        nodes.ask(&id.to_string(), cards).expect("some node has enough free cards")
    }

    fn end(&mut self, id: usize) {
        self.loop_of_all.as_mut().expect("begun").end(&id.to_string());
    }
}
