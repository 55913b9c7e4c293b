//! Which whole cards of a machine to take together.
//!
//! The key and its order were found by simulation (single machines and clusters of sixteen, loads of 85 and 95 %): on a
//! DGX-1V the sets chosen by it have 0.946 of the bandwidth that the empty machine could give, where a score of pairs
//! as a tie-break after the bandwidth has 0.922, and the remainder before the bandwidth 0.793. `cargo xtask bench sets`
//! compares it with what others choose.

use std::cmp::Reverse;

use tessera_api::NodeReport;
use tessera_inventory::Topology;
use tessera_inventory::topology::{CardSet, Nested};

/// The cards of one machine, ready for comparing sets of them.
#[derive(Clone, Debug)]
pub struct CardSets {
    topology: Topology,
    nested: Nested,
}

/// What a set of cards costs; the least is best. Fields in the order of their weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardsCost {
    /// Bandwidth of the best ring through the set, MB/s.
    pub ring: Reverse<u64>,
    /// NUMA nodes that it spans; cards whose node is unknown count as on one.
    pub numa_nodes: usize,
    /// What of the machine's best quads and pairs it breaks up: 1000 for each free quad of which it takes a part, 100
    /// for each quad that it touches, 10 and 1 for pairs.
    pub buddies: u64,
    /// See [`Topology::weight`].
    pub weight: Reverse<u64>,
    /// Positions by PCI address.
    pub cards: Vec<usize>,
}

impl CardSets {
    /// The cards of a report; `None` for more than any machine has.
    #[must_use]
    pub fn of_report(report: &NodeReport) -> Option<Self> {
        let topology = Topology::from_report(report)?;
        Some(Self { nested: topology.nested(), topology })
    }

    /// The connections.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What it costs to take `set`, all of it from `free`.
    #[must_use]
    pub fn cost(&self, set: CardSet, free: CardSet) -> CardsCost {
        let mut numa_nodes: Vec<Option<u32>> = set.iter().map(|card| self.topology.numa_node(card)).collect();
        numa_nodes.sort_unstable();
        numa_nodes.dedup();
        CardsCost {
            ring: Reverse(self.topology.ring(set)),
            numa_nodes: numa_nodes.len(),
            buddies: self.buddies(set, free),
            weight: Reverse(self.topology.weight(set)),
            cards: set.iter().collect(),
        }
    }

    fn buddies(&self, set: CardSet, free: CardSet) -> u64 {
        let of = |groups: &[CardSet], touched: u64, broken: u64| -> u64 {
            let touches = groups.iter().filter(|group| !(**group & set).is_empty());
            touches
                .map(|group| {
                    let is_broken = free.includes(*group) && !set.includes(*group);
                    touched + if is_broken { broken } else { 0 }
                })
                .sum()
        };
        of(&self.nested.quads, 100, 1_000) + of(&self.nested.pairs, 1, 10)
    }
}

/// MB/s; more than any ring has.
const BEST_RING: u64 = 2_000_000;

/// The class of a ring's bandwidth, comparable between machines: 0 for the best that could be, each further class for a
/// tenth less. Rings of one class are equal enough that it does not pay to open an empty node for the better one.
#[must_use]
pub fn ring_class(megabytes_per_second: u64) -> u16 {
    let mut class = 0;
    let mut reached = BEST_RING;
    while reached > megabytes_per_second.max(1) {
        reached -= (reached / 10).max(1);
        class += 1;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_a_tenth_apart() {
        // 18 links of NVLink 5.0 and 4.0, 12 of 3.0, two bridges, PCIe near and far, nothing.
        let rings = [956_250, 478_116, 309_372, 100_000, 24_000, 10_000, 0];
        let classes = rings.map(ring_class);
        assert!(classes.is_sorted() && classes[0] > 0 && classes[6] < 200, "{classes:?}");
        for ring in rings.into_iter().filter(|ring| *ring > 0) {
            let tenth_less = ring_class(ring - ring / 10);
            assert!((0..=1).contains(&(tenth_less - ring_class(ring))), "{ring}: {tenth_less}");
            assert!(ring_class(ring - ring / 5) - ring_class(ring) >= 1, "{ring}");
        }
    }
}
