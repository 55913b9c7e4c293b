//! kube-scheduler 1.36 with its default plugins. The scorers in effect here are NodeResourcesFit (LeastAllocated) and
//! NodeResourcesBalancedAllocation, each over CPU and memory with weight 1. Devices of claims are not scored. The device is the
//! first fitting one in published order.

use tessera_placement::packing::{Demand, Node, Place};

use super::Policy;
use crate::Random;

/// Smaller fleets are searched completely, larger fleets until at least this many nodes fit (`minFeasibleNodesToFind`).
const LEAST_NODES: usize = 100;

/// Requests that LeastAllocated assumes for a pod without requests: thousandths of a core, MiB.
pub(crate) const UNASKED: [u64; 2] = [100, 200];

/// kube-scheduler.
#[derive(Clone, Debug, Default)]
pub struct KubeScheduler {
    /// Start of the next search (`nextStartNodeIndex`).
    next: usize,
}

/// Number of fitting nodes at which the search ends (`numFeasibleNodesToFind`).
fn enough(nodes: usize) -> usize {
    if nodes < LEAST_NODES {
        return nodes;
    }
    let percentage = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percentage / 100).max(LEAST_NODES)
}

pub(crate) fn least_allocated(node: &Node, demand: &Demand) -> u64 {
    let asked = [demand.cpu_milli(), demand.memory_mib()];
    let free = [node.cpu_milli(), node.memory_mib()];
    let all = [node.cpu_milli_in_all(), node.memory_mib_in_all()];
    let score = |of: usize| {
        let asked = if asked[of] == 0 { UNASKED[of] } else { asked[of] };
        free[of].saturating_sub(asked) * 100 / all[of].max(1)
    };
    (score(0) + score(1)) / 2
}

pub(crate) fn balanced_allocation(node: &Node, demand: &Demand) -> u64 {
    let balance = |cpu: u64, memory: u64| {
        let part = |used: u64, all: u64| (used as f64 / all.max(1) as f64).min(1.0);
        let difference = part(cpu, node.cpu_milli_in_all()) - part(memory, node.memory_mib_in_all());
        ((1.0 - (difference / 2.0).abs()) * 100.0) as u64
    };
    let (cpu, memory) =
        (node.cpu_milli_in_all() - node.cpu_milli(), node.memory_mib_in_all() - node.memory_mib());
    let (with, without) =
        (balance(cpu + demand.cpu_milli(), memory + demand.memory_mib()), balance(cpu, memory));
    // Both scores are from 50 to 100, so the sum is not below 0.
    50 + (50 + with - without) / 2
}

impl KubeScheduler {
    /// The node with the highest score in a sample of the fitting nodes; random among equals.
    pub(crate) fn best(
        &mut self,
        nodes: usize,
        random: &mut Random,
        mut score: impl FnMut(usize) -> Option<u64>,
    ) -> Option<usize> {
        let enough = enough(nodes);
        let (mut fitting, mut looked_at, mut equals) = (0, 0, 0);
        let mut best: Option<(u64, usize)> = None;
        for offset in 0..nodes {
            let index = (self.next + offset) % nodes;
            looked_at += 1;
            let Some(score) = score(index) else { continue };
            fitting += 1;
            match best {
                Some((most, _)) if score < most => {}
                Some((most, _)) if score == most => {
                    equals += 1;
                    if random.below(equals) == 0 {
                        best = Some((score, index));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((score, index));
                }
            }
            if fitting == enough {
                break;
            }
        }
        self.next = (self.next + looked_at) % nodes.max(1);
        best.map(|(_, node)| node)
    }
}

impl Policy for KubeScheduler {
    fn choose(&mut self, nodes: &[Node], demand: &Demand, random: &mut Random) -> Option<Place> {
        let node = self.best(nodes.len(), random, |index| {
            let node = &nodes[index];
            node.fits(demand).then(|| least_allocated(node, demand) + balanced_allocation(node, demand))
        })?;
        Some(Place { node, cards: nodes[node].first_cards(demand) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_placement::packing::{Cards, ModelSet};

    #[test]
    fn it_looks_at_a_sample() {
        assert_eq!([99, 100, 1213, 5000, 10_000].map(enough), [99, 100, 497, 500, 500]);
    }

    #[test]
    fn scores_are_kubernetes() {
        let mut node = Node::new(0, 1, 10_000, 1_000).unwrap();
        let demand = |cpu, memory| Demand::new(cpu, memory, 0, 0, ModelSet::ANY).unwrap();
        assert!(node.take(&demand(4_000, 200), Cards::NONE));
        // (10000-4000-1000)·100/10000 = 50 and (1000-200-300)·100/1000 = 50.
        assert_eq!(least_allocated(&node, &demand(1_000, 300)), 50);
        // |0.4-0.2|/2 = 0.1 before, |0.5-0.5|/2 = 0 after: 50 + (50 + 100 - 90)/2.
        assert_eq!(balanced_allocation(&node, &demand(1_000, 300)), 80);
        assert_eq!(least_allocated(&node, &demand(0, 0)), (59 + 60) / 2);
    }
}
