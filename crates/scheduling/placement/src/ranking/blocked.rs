//! Nodes unable to take a pod. In a large fleet most share a few reasons, so each reason is stored once.

use std::collections::HashMap;

use crate::fleet::NodeIndex;
use crate::kept::Bytes;
use crate::reason::Reason;

/// Nodes unable to take a pod, each with its reason.
#[derive(Debug, Default)]
pub(super) struct BlockedNodes {
    /// By node: index of its reason plus one; 0 for a node not blocked.
    of_nodes: Vec<u32>,
    /// Each reason with its number of nodes; 0 marks a vacant entry.
    reasons: Vec<(Reason, usize)>,
    places: HashMap<Reason, u32>,
    free: Vec<u32>,
    /// Bytes of the reasons. Each text is stored twice, once as a key.
    bytes: usize,
}

impl BlockedNodes {
    /// Marks the node as blocked for this reason.
    pub fn insert(&mut self, index: NodeIndex, reason: Reason) {
        self.remove(index);
        let place = self.places.get(&reason).copied().unwrap_or_else(|| self.add(reason));
        self.reasons[place as usize].1 += 1;
        let index = index as usize;
        if self.of_nodes.len() <= index {
            self.of_nodes.resize(index + 1, 0);
        }
        self.of_nodes[index] = place + 1;
    }

    /// Marks the node as not blocked, as far as known.
    pub fn remove(&mut self, index: NodeIndex) {
        let Some(of_node) = self.of_nodes.get_mut(index as usize) else { return };
        let Some(place) = std::mem::take(of_node).checked_sub(1) else { return };
        let (reason, nodes) = &mut self.reasons[place as usize];
        *nodes -= 1;
        if *nodes == 0 {
            self.bytes -= bytes_of(reason);
            self.places.remove(reason);
            self.free.push(place);
        }
    }

    /// Why the node is blocked, if it is.
    pub fn reason_of(&self, index: NodeIndex) -> Option<&Reason> {
        let place = self.of_nodes.get(index as usize)?.checked_sub(1)?;
        self.reasons.get(place as usize).map(|(reason, _)| reason)
    }

    /// Each reason with its number of nodes.
    pub fn reasons(&self) -> impl Iterator<Item = (&Reason, usize)> + Clone {
        self.reasons.iter().filter(|(_, nodes)| *nodes > 0).map(|(reason, nodes)| (reason, *nodes))
    }

    /// Nodes blocked for a reason matching the predicate.
    pub fn nodes(&self, is_so: impl Fn(&Reason) -> bool) -> impl Iterator<Item = NodeIndex> {
        let is_so: Vec<bool> = self.reasons.iter().map(|(reason, _)| is_so(reason)).collect();
        let all = (0..).zip(&self.of_nodes);
        let blocked = all.filter_map(|(index, place)| Some((index, place.checked_sub(1)?)));
        blocked.filter(move |(_, place)| is_so[*place as usize]).map(|(index, _)| index)
    }

    fn add(&mut self, reason: Reason) -> u32 {
        let place = self.free.pop().unwrap_or(self.reasons.len() as u32);
        self.bytes += bytes_of(&reason);
        self.places.insert(reason.clone(), place);
        match self.reasons.get_mut(place as usize) {
            Some(unused) => *unused = (reason, 0),
            None => self.reasons.push((reason, 0)),
        }
        place
    }
}

fn bytes_of(reason: &Reason) -> usize {
    2 * reason.bytes() + 16
}

impl Bytes for BlockedNodes {
    fn bytes(&self) -> usize {
        let free = self.free.capacity() * size_of::<u32>();
        size_of::<Self>() + self.of_nodes.capacity() * size_of::<u32>() + self.bytes + free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(text: &str) -> Reason {
        Reason::Room(text.to_owned())
    }

    #[test]
    fn each_reason_is_kept_once_and_gone_with_its_last_node() {
        let mut blocked = BlockedNodes::default();
        for index in 0..1_000 {
            blocked.insert(index, Reason::Devices);
        }
        for index in [3, 7] {
            blocked.insert(index, room("a"));
        }
        assert_eq!(blocked.reasons().collect::<Vec<_>>(), [(&Reason::Devices, 998), (&room("a"), 2)]);
        assert_eq!(blocked.nodes(|reason| *reason == room("a")).collect::<Vec<_>>(), [3, 7]);
        blocked.remove(3);
        blocked.insert(7, room("b"));
        blocked.remove(7);
        blocked.remove(7);
        assert_eq!(blocked.reasons().collect::<Vec<_>>(), [(&Reason::Devices, 998)]);
        assert!(blocked.bytes() < 1_000 * 10, "{}", blocked.bytes());
        assert_eq!(blocked.nodes(|_| true).count(), 998);
    }
}
