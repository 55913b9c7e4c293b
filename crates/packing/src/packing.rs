//! The policy.

use crate::plan::{Kinds, Plan};
use crate::weights::{Departures, LOOK_EVERY, Weights};
use crate::{Cards, CostTable, Demand, Mix, Node, Place};

/// Arrivals before the first plan; the next ones come after twice as many each, up to [`PLAN_EVERY`].
const FIRST_PLAN: u64 = 50;

/// Arrivals between plans in the long run. From the second such plan on, what was seen before it counts half, so that the mix
/// follows a demand that changes.
const PLAN_EVERY: u64 = 6400;

/// Cards' worth of free room for which the weight of open nodes counts once.
const LEVEL: f64 = 8000.0;

/// Chooses nodes by their value, and learns the mix of the demand meanwhile.
///
/// It is told of every arrival ([`NodeValuePacking::choose`]), of every change of a node, and of every departure. A choice
/// on 5,000 nodes takes some microseconds, as only what changed is computed again.
#[derive(Debug)]
pub struct NodeValuePacking {
    kinds: Kinds,
    mix: Mix,
    departures: Departures,
    weights: Weights,
    plan: Plan,
    arrivals: u64,
    next_plan: u64,
    /// By node.
    values: Vec<f64>,
    costs: CostTable,
}

impl NodeValuePacking {
    /// For these nodes, knowing nothing of the demand.
    #[must_use]
    pub fn new(nodes: &[Node]) -> Self {
        let kinds = Kinds::of(nodes);
        let mix = Mix::default();
        let departures = Departures::default();
        let mut packing = Self {
            plan: Plan::new(&mix, &kinds),
            weights: departures.weights(),
            departures,
            kinds,
            mix,
            arrivals: 0,
            next_plan: FIRST_PLAN,
            values: Vec::new(),
            costs: CostTable::new(nodes.len()),
        };
        packing.compute(nodes);
        packing
    }

    /// A pod arrives: where it costs least. `None` when no node has room; it counts as demand nevertheless.
    pub fn choose(&mut self, nodes: &[Node], demand: &Demand) -> Option<Place> {
        self.look(nodes);
        self.arrivals += 1;
        self.mix.arrived(demand);
        let Self { plan, weights, values, costs, .. } = self;
        costs.cheapest(nodes, demand, |index, node| cost(plan, *weights, values[index], node, demand))
    }

    /// Something was taken of a node, or given back.
    pub fn changed(&mut self, nodes: &[Node], index: usize) {
        self.values[index] = value(&self.plan, self.weights, &nodes[index]);
        self.costs.forget_node(index);
    }

    /// A pod left.
    pub fn departed(&mut self) {
        self.departures.departed();
    }

    /// Before an arrival: brings plan, prices and weights up to date.
    fn look(&mut self, nodes: &[Node]) {
        let is_time = self.arrivals.is_multiple_of(LOOK_EVERY);
        let mut is_changed = is_time && self.departures.look();
        if is_changed {
            self.weights = self.departures.weights();
        }
        if self.arrivals == self.next_plan {
            self.plan = Plan::new(&self.mix, &self.kinds);
            if self.next_plan > PLAN_EVERY {
                self.mix.fade();
            }
            self.next_plan += self.next_plan.min(PLAN_EVERY);
            self.plan.reservations.reprice(nodes);
            is_changed = true;
        } else if is_time {
            is_changed |= self.plan.reservations.reprice(nodes);
        }
        if is_changed {
            self.compute(nodes);
        }
    }

    fn compute(&mut self, nodes: &[Node]) {
        self.values = nodes.iter().map(|node| value(&self.plan, self.weights, node)).collect();
        self.costs.forget_all();
    }
}

/// What a node can still take, in cards.
fn value(plan: &Plan, weights: Weights, node: &Node) -> f64 {
    let prices = plan.prices(node.model());
    let cards: f64 = node.cards().iter().map(|free| prices.of_rest(*free)).sum();
    let expected = if weights.expected > 0.0 {
        let expected: f64 = node.cards().iter().map(|free| prices.expected_of_rest(*free)).sum();
        weights.expected * (expected - cards)
    } else {
        0.0
    };
    let stranded = plan.stranding(node.model()).of(cards, node.cpu_milli());
    cards + expected - weights.stranding * stranded + plan.reservations.value(node, cards)
}

/// What a demand costs on a node that it fits on, whose value is `before`, and the cards that it takes there.
fn cost(plan: &Plan, weights: Weights, before: f64, node: &Node, demand: &Demand) -> (f64, Cards) {
    let of = |cards: Cards| {
        let after = node.after(demand, cards);
        before - value(plan, weights, &after) + weights.level * (after.free() as f64 / LEVEL)
    };
    if demand.cards() != 1 {
        let cards = node.first_cards(demand);
        return (of(cards), cards);
    }
    let mut best = (f64::INFINITY, Cards::NONE);
    for (card, free) in node.cards().iter().enumerate() {
        // Cards of which the same is free are alike.
        if *free >= demand.thousandths() && !node.cards()[..card].contains(free) {
            let cost = of(Cards::one(card));
            if cost < best.0 {
                best = (cost, Cards::one(card));
            }
        }
    }
    best
}
