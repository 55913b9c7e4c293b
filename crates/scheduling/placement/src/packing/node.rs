//! A node with its free resources.

use super::demand::Demand;
use super::limits::{MAX_CARDS, MAX_MODELS, WHOLE};

/// A set of cards of one node, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cards(u16);

impl Cards {
    /// None.
    pub const NONE: Self = Self(0);

    /// One card.
    #[must_use]
    pub const fn one(card: usize) -> Self {
        Self(1 << card)
    }

    /// Whether the set contains the card.
    #[must_use]
    pub const fn has(self, card: usize) -> bool {
        self.0 >> card & 1 == 1
    }

    /// The indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_CARDS).filter(move |card| self.has(*card))
    }
}

impl FromIterator<usize> for Cards {
    fn from_iter<I: IntoIterator<Item = usize>>(cards: I) -> Self {
        Self(cards.into_iter().fold(0, |bits, card| bits | 1 << card))
    }
}

/// A node with its free resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    kind: NodeKind,
    cpu_milli: u64,
    memory_mib: u64,
    free: [u16; MAX_CARDS],
}

/// A node's total resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKind {
    pub model: u8,
    pub cards: u8,
    pub cpu_milli: u64,
    pub memory_mib: u64,
}

/// Reason for rejecting a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNode {
    /// No cards, or too many.
    #[error("{0} cards; from 1 to {MAX_CARDS} are supported")]
    Cards(u64),
    /// Model number too large.
    #[error("more than {MAX_MODELS} models of cards")]
    Model,
}

impl NodeKind {
    /// Whether the empty node could take the demand.
    pub fn could_take(&self, demand: &Demand) -> bool {
        demand.cards() <= self.cards
            && demand.cpu_milli() <= self.cpu_milli
            && demand.memory_mib() <= self.memory_mib
            && demand.models().has(self.model)
    }
}

impl Node {
    /// An empty node with `cards` cards of one model.
    ///
    /// # Errors
    /// If the node has no cards, or more than supported.
    pub fn new(model: u8, cards: u64, cpu_milli: u64, memory_mib: u64) -> Result<Self, InvalidNode> {
        if model >= MAX_MODELS {
            return Err(InvalidNode::Model);
        }
        let count = u8::try_from(cards).ok().filter(|count| (1..=MAX_CARDS as u8).contains(count));
        let count = count.ok_or(InvalidNode::Cards(cards))?;
        let mut free = [0; MAX_CARDS];
        free[..usize::from(count)].fill(WHOLE);
        let kind = NodeKind { model, cards: count, cpu_milli, memory_mib };
        Ok(Self { kind, cpu_milli, memory_mib, free })
    }

    /// A node partly in use: `free` thousandths of each card; CPU in thousandths of a core and memory in MiB, each
    /// as (free, total).
    ///
    /// # Errors
    /// As [`Node::new`].
    pub fn in_use(
        model: u8,
        free: &[u16],
        cpu_milli: (u64, u64),
        memory_mib: (u64, u64),
    ) -> Result<Self, InvalidNode> {
        let empty = Self::new(model, free.len() as u64, cpu_milli.1, memory_mib.1)?;
        let memory_mib = memory_mib.0.min(memory_mib.1);
        Ok(Self { memory_mib, ..empty.with(free, cpu_milli.0.min(cpu_milli.1)) })
    }

    /// The node with other free thousandths of its cards and other free CPU. Surplus entries are ignored; cards without an entry
    /// stay unchanged.
    #[must_use]
    pub fn with(&self, free: &[u16], cpu_milli: u64) -> Self {
        let mut node = Self { cpu_milli, ..self.clone() };
        for (card, free) in node.free[..usize::from(self.kind.cards)].iter_mut().zip(free) {
            *card = (*free).min(WHOLE);
        }
        node
    }

    pub(crate) const fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// The model of its cards.
    #[must_use]
    pub const fn model(&self) -> u8 {
        self.kind.model
    }

    /// Free CPU in thousandths of a core.
    #[must_use]
    pub const fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    /// Free memory in MiB.
    #[must_use]
    pub const fn memory_mib(&self) -> u64 {
        self.memory_mib
    }

    /// CPU of the empty node in thousandths of a core.
    #[must_use]
    pub const fn cpu_milli_in_all(&self) -> u64 {
        self.kind.cpu_milli
    }

    /// Memory of the empty node in MiB.
    #[must_use]
    pub const fn memory_mib_in_all(&self) -> u64 {
        self.kind.memory_mib
    }

    /// Free part of each card, in thousandths.
    #[must_use]
    pub fn cards(&self) -> &[u16] {
        &self.free[..usize::from(self.kind.cards)]
    }

    /// Free part of all cards together, in thousandths.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.cards().iter().map(|free| u64::from(*free)).sum()
    }

    /// Number of entirely free cards.
    #[must_use]
    pub fn whole_cards(&self) -> u8 {
        self.cards().iter().map(|free| u8::from(*free == WHOLE)).sum()
    }

    /// Whether the node has CPU and cards for the demand now, ignoring memory.
    #[must_use]
    pub fn fits_without_memory(&self, demand: &Demand) -> bool {
        let is_enough = |free: &&u16| **free >= demand.thousandths();
        demand.cpu_milli() <= self.cpu_milli
            && (demand.cards() == 0
                || demand.models().has(self.kind.model)
                    && self.cards().iter().filter(is_enough).count() >= usize::from(demand.cards()))
    }

    /// Whether the node could take the demand now.
    #[must_use]
    pub fn fits(&self, demand: &Demand) -> bool {
        demand.memory_mib() <= self.memory_mib && self.fits_without_memory(demand)
    }

    /// The first suitable cards for a demand with room on the node; for a share, only the first one.
    #[must_use]
    pub fn first_cards(&self, demand: &Demand) -> Cards {
        let indices = (0..self.cards().len()).filter(|card| self.free[*card] >= demand.thousandths());
        indices.take(usize::from(demand.cards())).collect()
    }

    /// Takes the demand from these cards.
    ///
    /// Returns false, without any change, if the node lacks room or the number of cards is wrong.
    #[must_use]
    pub fn take(&mut self, demand: &Demand, cards: Cards) -> bool {
        let is_free = |card| self.cards().get(card).is_some_and(|free| *free >= demand.thousandths());
        let is_right = cards.iter().count() == usize::from(demand.cards()) && cards.iter().all(is_free);
        if !is_right || !self.fits(demand) {
            return false;
        }
        self.cpu_milli -= demand.cpu_milli();
        self.memory_mib -= demand.memory_mib();
        for card in cards.iter() {
            self.free[card] -= demand.thousandths();
        }
        true
    }

    /// The node after [`Node::take`] of a demand with enough CPU and cards, leaving memory unchanged.
    pub(crate) fn after(&self, demand: &Demand, cards: Cards) -> Self {
        let mut after = self.clone();
        after.cpu_milli -= demand.cpu_milli();
        for card in cards.iter() {
            after.free[card] -= demand.thousandths();
        }
        after
    }

    /// Gives back what [`Node::take`] took with the same arguments.
    pub fn give_back(&mut self, demand: &Demand, cards: Cards) {
        self.cpu_milli += demand.cpu_milli();
        self.memory_mib += demand.memory_mib();
        for card in cards.iter() {
            self.free[card] += demand.thousandths();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::demand::ModelSet;

    #[test]
    fn what_is_taken_comes_back() {
        let mut node = Node::new(3, 2, 8000, 1024).unwrap();
        let empty = node.clone();
        let demand = |cards, part| Demand::new(1000, 512, cards, part, ModelSet::NONE.with(3)).unwrap();
        assert!(node.take(&demand(1, 400), Cards::one(1)));
        assert_eq!((node.cards(), node.free(), node.whole_cards()), ([1000, 600].as_slice(), 1600, 1));
        assert_eq!(node.first_cards(&demand(1, 700)), Cards::one(0));
        let before = node.clone();
        assert!(!node.take(&demand(1, 700), Cards::one(1)), "too little is left of the card");
        assert!(!node.take(&demand(1, 400), Cards::NONE) && !node.take(&demand(1, 400), Cards::one(2)));
        assert!(!node.take(&demand(2, 1000), [0, 1].into_iter().collect()));
        assert_eq!(node, before);
        assert!(node.take(&demand(1, 600), Cards::one(1)) && !node.fits(&demand(1, 10)), "no memory is left");
        node.give_back(&demand(1, 600), Cards::one(1));
        node.give_back(&demand(1, 400), Cards::one(1));
        assert_eq!(node, empty);
        assert!(!node.fits(&Demand::new(0, 0, 1, 10, ModelSet::NONE.with(2)).unwrap()), "another model");
    }
}
