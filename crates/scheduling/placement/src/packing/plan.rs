//! Values computed once per mix.

use std::collections::HashSet;
use std::sync::Arc;

use super::card_prices::{CardPrices, SIZES};
use super::demand::{Demand, ModelSet};
use super::mix::Mix;
use super::node::Node;
use super::node::NodeKind;
use super::reservations::Reservations;
use super::stranding::Stranding;

/// The kinds of nodes in a fleet.
#[derive(Clone, Debug)]
pub struct Kinds {
    kinds: Vec<NodeKind>,
    known: HashSet<NodeKind>,
    models: u8,
    most_cards: usize,
    most_cpu_milli: u64,
}

impl Kinds {
    /// Kinds of these nodes, in the order of first appearance.
    pub fn of<'n>(nodes: impl Iterator<Item = &'n Node>) -> Self {
        let mut kinds: Vec<NodeKind> = Vec::new();
        let mut known: HashSet<NodeKind> = HashSet::new();
        for node in nodes {
            if known.insert(*node.kind()) {
                kinds.push(*node.kind());
            }
        }
        Self {
            models: kinds.iter().map(|kind| kind.model + 1).max().unwrap_or_default(),
            most_cards: kinds.iter().map(|kind| usize::from(kind.cards)).max().unwrap_or_default(),
            most_cpu_milli: kinds.iter().map(|kind| kind.cpu_milli).max().unwrap_or_default(),
            known,
            kinds,
        }
    }

    /// Whether the node's kind is known.
    pub fn contains(&self, node: &Node) -> bool {
        self.known.contains(node.kind())
    }
}

/// Prices and stranding for one model of cards.
#[derive(Debug)]
struct CardPlan {
    prices: CardPrices,
    stranding: Stranding,
}

/// Values computed once per mix.
#[derive(Debug)]
pub struct Plan {
    /// By model; models accepted by the same demands share one.
    of_model: Vec<Arc<CardPlan>>,
    /// Values of scarce room.
    pub reservations: Reservations,
}

impl Plan {
    /// For this mix on nodes of these kinds.
    pub fn new(mix: &Mix, kinds: &Kinds) -> Self {
        let mut lists: Vec<ModelSet> = Vec::new();
        for (demand, _) in mix.iter() {
            if !lists.contains(&demand.models()) {
                lists.push(demand.models());
            }
        }
        let mut made: Vec<(Vec<bool>, Arc<CardPlan>)> = Vec::new();
        let mut of_model = Vec::new();
        for model in 0..kinds.models.max(1) {
            let accepts: Vec<bool> = lists.iter().map(|list| list.has(model)).collect();
            let known = made.iter().find(|(known, _)| *known == accepts).map(|(_, plan)| Arc::clone(plan));
            let plan = known.unwrap_or_else(|| {
                let plan = Arc::new(CardPlan::new(mix, model, kinds));
                made.push((accepts, Arc::clone(&plan)));
                plan
            });
            of_model.push(plan);
        }
        let reservations = Reservations::new(mix, &kinds.kinds, |model| {
            &of_model[usize::from(model).min(of_model.len() - 1)].prices
        });
        Self { of_model, reservations }
    }

    /// Prices for cards of a model.
    pub fn prices(&self, model: u8) -> &CardPrices {
        &self.of(model).prices
    }

    /// Stranding on nodes with cards of a model.
    pub fn stranding(&self, model: u8) -> &Stranding {
        &self.of(model).stranding
    }

    /// For a model newer than the plan, as for the first model. There is always one.
    fn of(&self, model: u8) -> &CardPlan {
        self.of_model.get(usize::from(model)).unwrap_or(&self.of_model[0])
    }
}

impl CardPlan {
    fn new(mix: &Mix, model: u8, kinds: &Kinds) -> Self {
        let accepted = mix.iter().filter(|(demand, _)| demand.cards() > 0 && demand.models().has(model));
        let cards = |demand: &Demand, count: f64| count * f64::from(demand.cards());
        let mut amounts = [0.0; SIZES];
        for (demand, count) in accepted.clone() {
            amounts[demand.size()] += cards(demand, count);
        }
        // Gives whole cards a price before anyone requests one.
        amounts[SIZES - 1] += 1e-6 * mix.count().max(1e-9);
        let prices = CardPrices::new(&amounts);
        let items = accepted.map(|(demand, count)| {
            let cpu_milli = demand.cpu_milli() / u64::from(demand.cards());
            (prices.of_size(demand.size()), cpu_milli, cards(demand, count))
        });
        let stranding = Stranding::new(kinds.most_cards, kinds.most_cpu_milli, items);
        Self { prices, stranding }
    }
}
