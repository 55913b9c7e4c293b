//! Holders of cards and parts of cards.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::PciBusId;
use tessera_cluster::AllocationExt;

use super::Fleet;

/// Cards of all nodes with their holders.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    nodes: Vec<BTreeMap<PciBusId, Card>>,
    /// Cards' worth taken.
    taken: f64,
    /// Number of cards at least partly taken, by product name.
    used: BTreeMap<String, usize>,
    used_nodes: usize,
}

/// One card.
#[derive(Clone, Debug, Default)]
struct Card {
    holders: Vec<Holder>,
}

/// Holder of a part of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Index of the pod in the workload, for [`super::Workload::name`].
    pub pod: usize,
    /// The device.
    pub device: String,
    /// The part in words: `whole`, `1g.10gb`, `15 %`.
    pub part: String,
    /// Fraction of the card's compute or memory, whichever is larger, from 0 to 1.
    pub of_card: f64,
}

/// A card of the map.
#[derive(Clone, Debug, PartialEq)]
pub struct CardView<'v> {
    /// Name of its node.
    pub node: &'v str,
    /// Index among the node's cards, by address.
    pub index: usize,
    /// PCI address.
    pub card: PciBusId,
    /// Product name.
    pub model: &'v str,
    /// Holders of the card or its parts.
    pub holders: &'v [Holder],
}

impl Card {
    fn taken(&self) -> f64 {
        taken(&self.holders)
    }
}

/// Fraction of a card held by these holders, from 0 to 1.
fn taken(holders: &[Holder]) -> f64 {
    // `sum` of an empty iterator is -0.
    holders.iter().fold(0.0, |sum, holder| sum + holder.of_card).min(1.0)
}

impl CardView<'_> {
    /// Held fraction of the card, from 0 to 1.
    #[must_use]
    pub fn taken(&self) -> f64 {
        taken(self.holders)
    }
}

impl Fleet {
    /// Cards' worth of these allocations on a node.
    pub(super) fn worth(&self, node: usize, allocations: &[AllocationResult]) -> f64 {
        let results = allocations.iter().flat_map(AllocationExt::results);
        let own =
            results.filter(|result| result.driver == self.driver() && result.admin_access != Some(true));
        own.filter_map(|result| Some(self.nodes[node].kind.parts.taken(result)?.of_card)).sum()
    }
}

impl Holdings {
    /// All cards are free.
    pub fn new(fleet: &Fleet) -> Self {
        let cards =
            |node: &super::FleetNode| node.cards().keys().map(|card| (*card, Card::default())).collect();
        Self { nodes: fleet.nodes().iter().map(cards).collect(), ..Self::default() }
    }

    /// Gives a pod the devices of an allocation on a node.
    pub fn take(&mut self, fleet: &Fleet, pod: usize, node: usize, allocation: &AllocationResult) {
        for result in allocation.results() {
            if result.driver != fleet.driver() || result.admin_access == Some(true) {
                continue;
            }
            let Some(taken) = fleet.nodes[node].kind.parts.taken(result) else { continue };
            let holder =
                Holder { pod, device: result.device.clone(), part: taken.words, of_card: taken.of_card };
            self.change(fleet, node, taken.card, |card| card.holders.push(holder));
        }
    }

    /// Frees the pod's devices on a node.
    pub fn give_back(&mut self, fleet: &Fleet, pod: usize, node: usize) {
        let held =
            self.nodes[node].iter().filter(|(_, card)| card.holders.iter().any(|holder| holder.pod == pod));
        let held: Vec<PciBusId> = held.map(|(address, _)| *address).collect();
        for card in held {
            self.change(fleet, node, card, |card| card.holders.retain(|holder| holder.pod != pod));
        }
    }

    fn change(&mut self, fleet: &Fleet, node: usize, card: PciBusId, change: impl FnOnce(&mut Card)) {
        let was_used = self.is_used(node);
        let (Some(model), Some(card)) =
            (fleet.nodes[node].cards().get(&card), self.nodes[node].get_mut(&card))
        else {
            return;
        };
        let before = (card.taken(), !card.holders.is_empty());
        change(card);
        self.taken += card.taken() - before.0;
        let is_used = !card.holders.is_empty();
        if is_used != before.1 {
            let used = self.used.entry(model.clone()).or_default();
            *used = if is_used { *used + 1 } else { *used - 1 };
        }
        self.used_nodes = self.used_nodes + usize::from(self.is_used(node)) - usize::from(was_used);
    }

    fn is_used(&self, node: usize) -> bool {
        self.nodes[node].values().any(|card| !card.holders.is_empty())
    }

    /// Cards' worth taken.
    pub fn taken(&self) -> f64 {
        // Repeated addition and subtraction leave a rounding error.
        if self.taken < 1e-9 { 0.0 } else { self.taken }
    }

    /// Number of cards at least partly taken, by product name.
    pub fn used(&self) -> &BTreeMap<String, usize> {
        &self.used
    }

    /// Number of nodes with such cards.
    pub fn used_nodes(&self) -> usize {
        self.used_nodes
    }

    /// Free fraction of each card of a node, from 0 to 1, by address.
    pub fn free_of(&self, node: usize) -> impl Iterator<Item = (PciBusId, f64)> {
        self.nodes[node].iter().map(|(address, card)| (*address, 1.0 - card.taken()))
    }

    /// All cards.
    pub fn cards<'v>(&'v self, fleet: &'v Fleet) -> impl Iterator<Item = CardView<'v>> {
        self.nodes.iter().zip(fleet.nodes()).flat_map(|(cards, node)| {
            cards.iter().zip(node.cards().values()).enumerate().map(|(index, ((address, card), model))| {
                CardView { node: &node.name, index, card: *address, model, holders: &card.holders }
            })
        })
    }
}
