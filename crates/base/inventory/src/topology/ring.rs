//! The value of a set of cards: the bandwidth of its ring all-reduce, and the closeness of its cards.

use super::{CardSet, Topology};

impl Topology {
    /// Bandwidth of the best ring through a set of cards, MB/s in one direction; 0 for fewer than two.
    ///
    /// Exact for up to four cards, and for any number behind switches: equal to the largest packing of directed
    /// Hamiltonian cycles in the graph of links, or the best bottleneck with PCIe in between if greater. For five
    /// and more directly linked cards an upper bound, enough for ranking them.
    #[must_use]
    pub fn ring(&self, set: CardSet) -> u64 {
        if set.len() > 2 && self.is_switched(set) {
            // Behind a switch a card has one set of links for all its peers: the weakest card decides.
            return self.pairs(set).map(|(one, other)| self.link_bandwidth(one, other)).min().unwrap_or(0);
        }
        let mut cards = set.iter();
        match [cards.next(), cards.next(), cards.next(), cards.next(), cards.next()] {
            [_, None, ..] => 0,
            [Some(one), Some(other), None, ..] => self.edge(one, other),
            [Some(a), Some(b), Some(c), None, _] => self.ring_of_three([(a, b), (a, c), (b, c)]),
            [Some(a), Some(b), Some(c), Some(d), None] => self.ring_of_four([a, b, c, d]),
            _ => self.second_best_edges(set),
        }
    }

    /// Both directions of the one cycle.
    fn ring_of_three(&self, edges: [(usize, usize); 3]) -> u64 {
        let links = edges.iter().map(|(one, other)| self.links(*one, *other)).min().unwrap_or(0);
        let edge = edges.iter().map(|(one, other)| self.edge(*one, *other)).min().unwrap_or(0);
        (2 * u64::from(links) * u64::from(self.link_rate)).max(edge)
    }

    /// A ring enters and leaves each card, over its two best edges at best.
    fn second_best_edges(&self, set: CardSet) -> u64 {
        let second_best = |card: usize| {
            let mut edges: Vec<u64> =
                set.iter().filter(|other| *other != card).map(|other| self.edge(card, other)).collect();
            edges.sort_unstable();
            edges.len().checked_sub(2).map_or(0, |second| edges[second])
        };
        set.iter().map(second_best).min().unwrap_or(0)
    }

    fn ring_of_four(&self, [a, b, c, d]: [usize; 4]) -> u64 {
        // A cycle of four is two of the three perfect matchings. Each matching carries twice (both directions) its
        // weaker edge.
        let matchings = [((a, b), (c, d)), ((a, c), (b, d)), ((a, d), (b, c))];
        let [x, y, z] =
            matchings.map(|((a, b), (c, d))| 2 * u64::from(self.links(a, b).min(self.links(c, d))));
        let rings = ((x + y + z) / 2).min(x + y).min(x + z).min(y + z);
        let [x, y, z] = matchings.map(|((a, b), (c, d))| self.edge(a, b).min(self.edge(c, d)));
        (rings * u64::from(self.link_rate)).max(x.min(y)).max(x.min(z)).max(y.min(z))
    }

    /// Bandwidth between two cards: over NVLink if linked, else over PCIe.
    fn edge(&self, one: usize, other: usize) -> u64 {
        match self.link_bandwidth(one, other) {
            0 => pcie_bandwidth(*self.closeness.get(one, other)),
            bandwidth => bandwidth,
        }
    }

    fn link_bandwidth(&self, one: usize, other: usize) -> u64 {
        u64::from(self.links(one, other)) * u64::from(self.link_rate)
    }

    /// Closeness of a pair as go-gpuallocator scores it: 100 for each link, plus its closeness on PCIe.
    pub(super) fn pair_weight(&self, one: usize, other: usize) -> u64 {
        100 * u64::from(self.links(one, other)) + u64::from(*self.closeness.get(one, other))
    }

    /// Closeness of a set: the sum over its pairs of 100 for each link, plus closeness on PCIe from 10 to 60, as
    /// go-gpuallocator scores it.
    #[must_use]
    pub fn weight(&self, set: CardSet) -> u64 {
        self.pairs(set).map(|(one, other)| self.pair_weight(one, other)).sum()
    }

    /// Whether all cards of a set reach each other through NVSwitches.
    pub(super) fn is_switched(&self, set: CardSet) -> bool {
        self.pairs(set).all(|(one, other)| *self.switched.get(one, other))
    }

    pub(super) fn pairs(&self, set: CardSet) -> impl Iterator<Item = (usize, usize)> {
        set.iter()
            .flat_map(move |one| set.iter().filter(move |&other| one < other).map(move |other| (one, other)))
    }

    /// The best ring of `size` cards in this machine, at least 1.
    pub(super) fn ideal_ring(&self, size: usize) -> u64 {
        self.all().subsets(size).map(|set| self.ring(set)).max().unwrap_or(1).max(1)
    }
}

/// Rough bandwidth of PCIe 4.0 x16, MB/s; only the ranking matters.
fn pcie_bandwidth(closeness: u32) -> u64 {
    match closeness {
        50.. => 24_000,
        40..50 => 22_000,
        30..40 => 18_000,
        20..30 => 16_000,
        _ => 10_000,
    }
}
