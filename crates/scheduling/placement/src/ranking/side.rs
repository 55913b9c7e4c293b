//! Nodes for one way of allocating the devices, best first, and the reasons of the blocked ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::blocked::BlockedNodes;
use crate::demand::Demand;
use crate::fleet::{Fleet, NodeIndex};
use crate::kept::Bytes;
use crate::reason::{self, Reason};
use crate::score::Score;
use crate::verdict::{Suits, Verdict};
use crate::view::View;

/// Nodes with devices allocated by us, or those with devices allocated by kube-scheduler.
#[derive(Debug, Default)]
pub struct Side {
    /// Position in the fleet's log of changes up to which this is current.
    seen: Option<usize>,
    best: BTreeSet<(Score, NodeIndex)>,
    suits: HashMap<NodeIndex, Suits>,
    /// Version of the values behind the scores, see [`crate::value::Packing::version`].
    version: u64,
    blocked: BlockedNodes,
    /// Nodes where kube-scheduler would end the attempt, with its error.
    fatal: BTreeMap<NodeIndex, String>,
    /// Approximate bytes of the entries for nodes, except the blocked ones.
    bytes: usize,
}

impl Side {
    /// Nodes able to take the pod, best first.
    pub fn best(&self) -> impl Iterator<Item = (Score, NodeIndex)> + '_ {
        self.best.iter().copied()
    }

    /// Nodes able to take the pod now, or after enough of their devices or room is released.
    pub fn could(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let held = self.blocked.nodes(|why| matches!(why, Reason::Devices | Reason::Room(_)));
        self.best.iter().map(|(_, index)| *index).chain(held)
    }

    /// Nodes able to take the pod after enough of their devices or room is released, each with what is missing now.
    pub(crate) fn could_later(&self) -> impl Iterator<Item = (NodeIndex, &Reason)> + '_ {
        let held = self.blocked.nodes(|why| matches!(why, Reason::Devices | Reason::Room(_)));
        held.filter_map(|index| Some((index, self.blocked.reason_of(index)?)))
    }

    /// Number of nodes able to take the pod.
    pub fn suitable(&self) -> usize {
        self.best.len()
    }

    /// The error with which kube-scheduler would end the attempt, on whichever node.
    pub fn fatal(&self) -> Option<&str> {
        self.fatal.values().next().map(String::as_str)
    }

    /// Nodes with enough devices but no other room.
    pub fn without_room(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.blocked.nodes(|why| matches!(why, Reason::Room(_)))
    }

    /// Whether no node has the requested devices, free or not.
    pub fn is_empty(&self) -> bool {
        self.best.is_empty() && self.fatal.is_empty() && self.blocked.reasons().next().is_none()
    }

    /// Reasons of all nodes in one sentence; `kept` of the suitable nodes are reserved for other pods.
    pub fn sentence(&self, kept: usize) -> String {
        let refused = [(&Reason::Kept, kept), (&Reason::RefusedBefore, self.best.len().saturating_sub(kept))];
        reason::sentence(self.blocked.reasons().chain(refused))
    }

    /// As [`Self::sentence`], with other verdicts on some nodes: a reason, or `None` for a suitable one.
    pub(crate) fn sentence_with(&self, kept: usize, others: &BTreeMap<NodeIndex, Option<Reason>>) -> String {
        let mut counts: BTreeMap<&Reason, usize> = self.blocked.reasons().collect();
        let mut suitable = self.best.len();
        for (index, reason) in others {
            if let Some(before) = self.blocked.reason_of(*index)
                && let Some(count) = counts.get_mut(before)
            {
                *count -= 1;
            }
            suitable -= usize::from(self.takes(*index));
            match reason {
                Some(reason) => *counts.entry(reason).or_default() += 1,
                None => suitable += 1,
            }
        }
        let refused = [(&Reason::Kept, kept), (&Reason::RefusedBefore, suitable.saturating_sub(kept))];
        reason::sentence(counts.into_iter().chain(refused))
    }

    /// Judges the nodes changed since the last update, and returns their number. `judge` returns `None` for a node without any of
    /// the requested devices.
    pub(super) fn update(
        &mut self,
        demand: &Demand,
        view: &mut View<'_>,
        mut judge: impl FnMut(NodeIndex, &mut View<'_>) -> Option<Verdict>,
    ) -> u64 {
        self.revalue(demand, view.fleet);
        let changed = self.seen.and_then(|seen| view.fleet.changed_since(seen));
        let nodes: BTreeSet<NodeIndex> = match changed {
            Some(changed) => changed.iter().copied().collect(),
            None => (0..view.fleet.len() as NodeIndex).collect(),
        };
        for index in &nodes {
            let index = *index;
            self.forget(index);
            match judge(index, view) {
                Some(Verdict::Takes(suits)) => {
                    self.bytes += bytes_of(&suits);
                    self.best.insert((suits.score, index));
                    self.suits.insert(index, suits);
                }
                Some(Verdict::Blocked(reason)) => self.blocked.insert(index, reason),
                Some(Verdict::Fatal(error)) => {
                    self.bytes += error.capacity() + 3 * ENTRY;
                    self.fatal.insert(index, error);
                }
                None => {}
            }
        }
        self.seen = Some(view.fleet.now());
        nodes.len() as u64
    }

    /// Whether the node can take the pod.
    pub(super) fn takes(&self, index: NodeIndex) -> bool {
        self.suits.contains_key(&index)
    }

    fn forget(&mut self, index: NodeIndex) {
        if let Some(suits) = self.suits.remove(&index) {
            self.bytes -= bytes_of(&suits);
            self.best.remove(&(suits.score, index));
        }
        self.blocked.remove(index);
        if let Some(error) = self.fatal.remove(&index) {
            self.bytes -= error.capacity() + 3 * ENTRY;
        }
    }

    /// Reorders the same nodes after node values were recomputed.
    fn revalue(&mut self, demand: &Demand, fleet: &Fleet) {
        if self.version == fleet.packing.version() {
            return;
        }
        self.version = fleet.packing.version();
        for (index, suits) in &mut self.suits {
            suits.revalue(demand, *index, fleet);
        }
        self.best = self.suits.iter().map(|(index, suits)| (suits.score, *index)).collect();
    }
}

/// Approximate size of a map entry, excluding its contents.
const ENTRY: usize = 16;

/// Approximate bytes of a node in `best` and `suits`.
fn bytes_of(suits: &Suits) -> usize {
    size_of::<(Score, NodeIndex)>() + ENTRY + suits.bytes() + ENTRY
}

impl Bytes for Side {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes + self.blocked.bytes()
    }
}
