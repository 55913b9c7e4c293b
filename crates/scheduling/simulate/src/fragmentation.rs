//! Fragmentation as FGD defines it.

use tessera_placement::packing::{Demand, Node};

/// Share of all pods that the most common demands must cover to count as typical.
const MOST_COMMON: f64 = 0.95;

/// Most typical demands, however small a share of the pods they cover.
const MOST: usize = 256;

/// The most common demands with their shares: the mix by which fragmentation is measured. Memory does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypicalPods {
    pods: Vec<(Demand, f64)>,
}

impl TypicalPods {
    /// From demands and their frequencies.
    #[must_use]
    pub fn new<'d>(seen: impl IntoIterator<Item = (&'d Demand, f64)>) -> Self {
        let mut counts = std::collections::BTreeMap::<_, f64>::new();
        for (demand, count) in seen {
            *counts.entry(demand.without_memory()).or_default() += count;
        }
        let all: f64 = counts.values().sum();
        let mut pods: Vec<(Demand, f64)> = counts.into_iter().collect();
        // Among equally frequent demands the larger comes first, as in the published algorithm.
        let size =
            |demand: &Demand| (demand.cpu_milli(), demand.thousandths(), demand.cards(), demand.models());
        pods.sort_by(|(one, count), (other, others)| {
            others.total_cmp(count).then_with(|| size(other).cmp(&size(one)))
        });
        pods.truncate(MOST);
        let mut counted = 0.0;
        pods.retain(|(_, count)| {
            let counts = counted < MOST_COMMON * all;
            counted += if counts { *count } else { 0.0 };
            counts
        });
        for (_, part) in &mut pods {
            *part /= counted;
        }
        Self { pods }
    }

    /// Expected thousandths of the node's free cards that a typical pod, drawn at random, cannot use.
    #[must_use]
    pub fn fragments(&self, node: &Node) -> f64 {
        let free = node.free() as f64;
        if free == 0.0 {
            return 0.0;
        }
        let unusable = |demand: &Demand| {
            if demand.cards() == 0 || !node.fits_without_memory(demand) {
                return free;
            }
            let too_small = node.cards().iter().filter(|free| **free < demand.thousandths());
            too_small.map(|free| u64::from(*free)).sum::<u64>() as f64
        };
        self.pods.iter().map(|(demand, part)| part * unusable(demand)).sum()
    }

    /// Fragmentation of all nodes, in percent of the free cards; 0 without free cards.
    #[must_use]
    pub fn fragmentation(&self, nodes: &[Node]) -> f64 {
        let free: u64 = nodes.iter().map(Node::free).sum();
        let fragments: f64 = nodes.iter().map(|node| self.fragments(node)).sum();
        if free == 0 { 0.0 } else { 100.0 * fragments / free as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_placement::packing::{Cards, ModelSet};

    #[test]
    fn what_typical_pods_cannot_use_is_fragmented() {
        let demand = |cards, part| Demand::new(1_000, 5, cards, part, ModelSet::ANY).unwrap();
        let (whole, half) = (demand(1, 1000), demand(1, 500));
        let typical = TypicalPods::new([(&whole, 75.0), (&half, 25.0)]);
        let mut node = Node::new(0, 2, 10_000, 100).unwrap();
        assert_eq!(typical.fragments(&node), 0.0);
        assert!(node.take(&demand(1, 400), Cards::one(0)));
        // The free 600 of one card are useless to pods asking for a whole card.
        assert_eq!(typical.fragments(&node), 0.75 * 600.0);
        assert_eq!(typical.fragmentation(&[node]), 0.75 * 600.0 / 16.0);
    }

    #[test]
    fn rare_demands_do_not_count() {
        let demand = |part| Demand::new(1_000, 5, 1, part, ModelSet::ANY).unwrap();
        let typical = TypicalPods::new([(&demand(10), 96.0), (&demand(20), 4.0)]);
        assert_eq!(typical.pods, [(demand(10).without_memory(), 1.0)]);
    }
}
