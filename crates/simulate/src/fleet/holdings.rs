//! Who holds which part of which card.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::AllocationResult;
use tessera_api::PciBusId;
use tessera_cluster::AllocationExt;

use super::Fleet;

/// Cards of all nodes, and who holds what of them.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    nodes: Vec<BTreeMap<PciBusId, Card>>,
    /// Cards' worth that is taken.
    taken: f64,
    /// Cards of which anything is taken, by product name.
    used: BTreeMap<String, usize>,
    used_nodes: usize,
}

/// One card.
#[derive(Clone, Debug, Default)]
struct Card {
    holders: Vec<Holder>,
}

/// Who holds a part of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Place of the pod in the workload, for [`super::Workload::name`].
    pub pod: usize,
    /// The device.
    pub device: String,
    /// What of the card it is, in words: `whole`, `1g.10gb`, `15 %`.
    pub part: String,
    /// From 0 to 1: of its compute or of its memory, whichever is more.
    pub of_card: f64,
}

/// A card of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct CardView<'v> {
    /// Its node.
    pub node: &'v str,
    /// Place among the cards of the node, by address.
    pub index: usize,
    /// Its address.
    pub card: PciBusId,
    /// Product name.
    pub model: &'v str,
    /// Who holds what.
    pub holders: &'v [Holder],
}

impl Card {
    fn taken(&self) -> f64 {
        taken(&self.holders)
    }
}

/// What these hold of a card, from 0 to 1.
fn taken(holders: &[Holder]) -> f64 {
    // Not a sum, which of nobody is -0.
    holders.iter().fold(0.0, |sum, holder| sum + holder.of_card).min(1.0)
}

impl CardView<'_> {
    /// What of it is held, from 0 to 1.
    #[must_use]
    pub fn taken(&self) -> f64 {
        taken(self.holders)
    }
}

impl Holdings {
    /// Nobody holds anything.
    pub fn new(fleet: &Fleet) -> Self {
        let cards =
            |node: &super::FleetNode| node.cards().keys().map(|card| (*card, Card::default())).collect();
        Self { nodes: fleet.nodes().iter().map(cards).collect(), ..Self::default() }
    }

    /// A pod gets this of a node.
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

    /// A pod gives back what it has of a node.
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

    /// Cards' worth that is taken.
    pub fn taken(&self) -> f64 {
        // Differences were added up.
        if self.taken < 1e-9 { 0.0 } else { self.taken }
    }

    /// Cards of which anything is taken, by product name.
    pub fn used(&self) -> &BTreeMap<String, usize> {
        &self.used
    }

    /// Nodes with such cards.
    pub fn used_nodes(&self) -> usize {
        self.used_nodes
    }

    /// What of a node's cards is free, each from 0 to 1, by address.
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
