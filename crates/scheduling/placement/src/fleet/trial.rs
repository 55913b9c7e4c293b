//! Nodes as a trial leaves them, and as they were before.

use super::{Fleet, NodeIndex};
use crate::node_cards::NodeCards;
use crate::value::PlainNode;

/// A node's generation and computed state before a trial.
#[derive(Debug)]
pub(crate) struct BeforeTrial {
    index: NodeIndex,
    generation: u64,
    cards: Option<NodeCards>,
    plain: Option<PlainNode>,
}

impl Fleet {
    /// Begins a trial on the node: gives it a generation of its own, so that nothing kept of its state is used or replaced. The log of
    /// changes stays as it is, so no ranking looks at the node again.
    pub(crate) fn begin_trial(&mut self, index: NodeIndex) -> BeforeTrial {
        self.latest += 1;
        let node = &mut self.nodes[index as usize];
        let generation = std::mem::replace(&mut node.generation, self.latest);
        BeforeTrial { index, generation, cards: node.cards.take(), plain: node.plain.take() }
    }

    /// Puts back the state before the trial, with everything computed for it.
    pub(crate) fn end_trial(&mut self, before: BeforeTrial) {
        let BeforeTrial { index, generation, cards, plain } = before;
        let node = &mut self.nodes[index as usize];
        (node.generation, node.cards, node.plain) = (generation, cards, plain);
    }
}
