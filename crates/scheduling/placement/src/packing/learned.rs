//! The learned demand, and node values derived from it.

use super::demand::Demand;
use super::mix::Mix;
use super::node::{Cards, Node};
use super::plan::{Kinds, Plan};
use super::weights::{Departures, LOOK_EVERY, Weights};

/// Arrivals before the first plan. Each later plan follows at twice the arrivals, up to [`PLAN_EVERY`] apart.
const FIRST_PLAN: u64 = 50;

/// Arrivals between plans in the long run. From the second such plan on, each halves the counts of earlier arrivals, so that the
/// mix follows a changing demand.
const PLAN_EVERY: u64 = 6400;

/// Free thousandths (eight cards) for which the weight of open nodes counts once.
const LEVEL: f64 = 8000.0;

/// The learned demand, and node values derived from it.
///
/// Stores nothing per node: callers keep node values until [`Learned::look`] returns true.
#[derive(Debug)]
pub struct Learned {
    kinds: Kinds,
    mix: Mix,
    departures: Departures,
    weights: Weights,
    plan: Plan,
    arrivals: u64,
    next_plan: u64,
    /// Whether the arrivals since the last look are enough for another.
    is_due: bool,
    /// Whether nodes of a kind unknown to the plan appeared.
    is_outgrown: bool,
}

impl Learned {
    /// For these nodes, with no demand learned yet.
    #[must_use]
    pub fn new<'n>(nodes: impl Iterator<Item = &'n Node>) -> Self {
        let kinds = Kinds::of(nodes);
        let mix = Mix::default();
        let departures = Departures::default();
        Self {
            plan: Plan::new(&mix, &kinds),
            weights: departures.weights(),
            departures,
            kinds,
            mix,
            arrivals: 0,
            next_plan: FIRST_PLAN,
            is_due: true,
            is_outgrown: false,
        }
    }

    /// Counts a pod's demand, whether served or not.
    pub fn arrived(&mut self, demand: &Demand) {
        self.arrivals += 1;
        self.mix.arrived(demand);
        self.is_due |= self.arrivals.is_multiple_of(LOOK_EVERY) || self.arrivals >= self.next_plan;
    }

    /// Counts the departure of a served pod.
    pub fn departed(&mut self) {
        self.departures.departed();
    }

    /// Records a new or changed node.
    pub fn met(&mut self, node: &Node) {
        if !self.kinds.contains(node) {
            self.is_outgrown = true;
            self.is_due = true;
        }
    }

    /// Whether [`Learned::look`] has work to do.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Call before a choice: updates plan, prices and weights with the arrivals and departures, if due. `nodes` are all nodes.
    /// Returns whether values and costs may have changed.
    pub fn look<'n, N>(&mut self, nodes: N) -> bool
    where
        N: Iterator<Item = &'n Node> + Clone,
    {
        if !std::mem::take(&mut self.is_due) {
            return false;
        }
        let is_time = self.arrivals.is_multiple_of(LOOK_EVERY);
        let mut is_changed = is_time && self.departures.look();
        if is_changed {
            self.weights = self.departures.weights();
        }
        let is_outgrown = std::mem::take(&mut self.is_outgrown);
        let is_planned = self.arrivals >= self.next_plan;
        if is_planned || is_outgrown {
            if is_outgrown {
                self.kinds = Kinds::of(nodes.clone());
            }
            self.plan = Plan::new(&self.mix, &self.kinds);
            if is_planned && self.next_plan > PLAN_EVERY {
                self.mix.fade();
            }
            while self.next_plan <= self.arrivals {
                self.next_plan += self.next_plan.min(PLAN_EVERY);
            }
            self.plan.reservations.reprice(nodes);
            is_changed = true;
        } else if is_time {
            is_changed |= self.plan.reservations.reprice(nodes);
        }
        is_changed
    }

    /// Value of a node's room, in cards.
    #[must_use]
    pub fn value(&self, node: &Node) -> f64 {
        let (plan, weights) = (&self.plan, self.weights);
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

    /// Cost of leaving so many thousandths of a node's cards free: small, so that few nodes are open.
    #[must_use]
    pub fn level(&self, free: u64) -> f64 {
        self.weights.level * (free as f64 / LEVEL)
    }

    /// Cost of a demand on a node with room for it, whose value is `before`, and the cards to take.
    #[must_use]
    pub fn cost(&self, before: f64, node: &Node, demand: &Demand) -> (f64, Cards) {
        let of = |cards: Cards| {
            let after = node.after(demand, cards);
            before - self.value(&after) + self.level(after.free())
        };
        if demand.cards() != 1 {
            let cards = node.first_cards(demand);
            return (of(cards), cards);
        }
        let mut best = (f64::INFINITY, Cards::NONE);
        for (card, free) in node.cards().iter().enumerate() {
            // Cards with equal free parts are interchangeable.
            if *free >= demand.thousandths() && !node.cards()[..card].contains(free) {
                let cost = of(Cards::one(card));
                if cost < best.0 {
                    best = (cost, Cards::one(card));
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::demand::ModelSet;

    fn share(thousandths: u64) -> Demand {
        Demand::new(1_000, 0, 1, thousandths, ModelSet::ANY).unwrap()
    }

    #[test]
    fn a_remainder_that_nobody_wants_is_worth_nothing() {
        let node = Node::new(0, 2, 64_000, 1 << 20).unwrap();
        let mut learned = Learned::new(std::iter::once(&node));
        for _ in 0..50 {
            learned.arrived(&share(600));
        }
        assert!(learned.is_due() && learned.look(std::iter::once(&node)));
        assert!(!learned.look(std::iter::once(&node)), "not before more arrive");
        let rest = Node::in_use(0, &[400, 1000], (64_000, 64_000), (1 << 20, 1 << 20)).unwrap();
        let full = Node::in_use(0, &[0, 1000], (64_000, 64_000), (1 << 20, 1 << 20)).unwrap();
        assert_eq!(learned.value(&rest), learned.value(&full));
        assert!(learned.value(&node) > learned.value(&rest) + 0.9);
    }

    /// After a restart the loop may learn of many pods at once.
    #[test]
    fn many_at_once_are_one_plan() {
        let node = Node::new(0, 2, 64_000, 1 << 20).unwrap();
        let mut learned = Learned::new(std::iter::once(&node));
        for _ in 0..1_000 {
            learned.arrived(&share(500));
        }
        assert!(learned.look(std::iter::once(&node)));
        assert_eq!(learned.next_plan, 1_600);
    }

    #[test]
    fn nodes_of_a_new_kind_are_planned_for() {
        let small = Node::new(0, 2, 64_000, 1 << 20).unwrap();
        let large = Node::new(1, 8, 256_000, 1 << 20).unwrap();
        let mut learned = Learned::new(std::iter::once(&small));
        learned.look(std::iter::once(&small));
        learned.met(&small);
        assert!(!learned.is_due());
        learned.met(&large);
        assert!(learned.look([&small, &large].into_iter()));
        assert_eq!(learned.value(&large), 8.0);
    }
}
