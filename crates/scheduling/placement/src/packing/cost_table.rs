//! Cost of each demand on each node, cached until the node changes.

use std::collections::HashMap;

use super::demand::Demand;
use super::node::{Cards, Node};

/// Limit of entries, of ten bytes each.
const MOST: usize = 16 << 20;

/// Costs closer than this are equal.
const EQUAL: f64 = 1e-9;

/// The chosen node and cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node's index.
    pub node: usize,
    /// Its cards.
    pub cards: Cards,
}

/// Cost of each demand on each node. Memory is checked only at the choice of a node, so demands differing in memory alone share
/// their entries.
#[derive(Clone, Debug)]
pub struct CostTable {
    nodes: usize,
    rows: HashMap<Demand, usize>,
    /// By row, then node. NaN: not computed yet; infinite: the demand does not fit.
    costs: Vec<f64>,
    cards: Vec<Cards>,
}

impl CostTable {
    /// For so many nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self { nodes, rows: HashMap::new(), costs: Vec::new(), cards: Vec::new() }
    }

    /// Drops the costs on a changed node.
    pub fn forget_node(&mut self, node: usize) {
        for cost in self.costs.iter_mut().skip(node).step_by(self.nodes.max(1)) {
            *cost = f64::NAN;
        }
    }

    /// Drops all costs, after a change of the values behind them.
    pub fn forget_all(&mut self) {
        self.costs.fill(f64::NAN);
    }

    /// The node with the least cost for a demand, the first among equals. `cost` is called only for nodes with enough CPU and
    /// cards, and returns the cost and the cards to take.
    pub fn cheapest(
        &mut self,
        nodes: &[Node],
        demand: &Demand,
        cost: impl Fn(usize, &Node) -> (f64, Cards),
    ) -> Option<Place> {
        let first = self.row(&demand.without_memory()) * self.nodes;
        let costs = &mut self.costs[first..first + self.nodes];
        let cards = &mut self.cards[first..first + self.nodes];
        let mut least = f64::INFINITY;
        let mut best = None;
        for (index, node) in nodes.iter().enumerate() {
            if costs[index].is_nan() {
                let fits = node.fits_without_memory(demand);
                (costs[index], cards[index]) =
                    if fits { cost(index, node) } else { (f64::INFINITY, Cards::NONE) };
            }
            if costs[index] < least - EQUAL && node.memory_mib() >= demand.memory_mib() {
                least = costs[index];
                best = Some(Place { node: index, cards: cards[index] });
            }
        }
        best
    }

    fn row(&mut self, shape: &Demand) -> usize {
        if let Some(row) = self.rows.get(shape) {
            return *row;
        }
        if self.costs.len() + self.nodes > MOST {
            self.rows.clear();
            self.costs.clear();
            self.cards.clear();
        }
        let row = self.rows.len();
        self.rows.insert(*shape, row);
        self.costs.resize(self.costs.len() + self.nodes, f64::NAN);
        self.cards.resize(self.cards.len() + self.nodes, Cards::NONE);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::demand::ModelSet;

    #[test]
    fn costs_are_computed_again_where_something_changed() {
        let mut nodes: Vec<Node> = (0..3).map(|_| Node::new(0, 1, 1_000, 100).unwrap()).collect();
        let demand = Demand::new(0, 50, 1, 500, ModelSet::ANY).unwrap();
        let free_first = |_: usize, node: &Node| (-(node.free() as f64), node.first_cards(&demand));
        let mut table = CostTable::new(3);
        let mut place = |table: &mut CostTable| {
            let place = table.cheapest(&nodes, &demand, free_first)?;
            assert!(nodes[place.node].take(&demand, place.cards));
            table.forget_node(place.node);
            Some(place.node)
        };
        let placed: Vec<_> = std::iter::from_fn(|| place(&mut table)).collect();
        assert_eq!(placed, [0, 1, 2, 0, 1, 2]);
    }
}
