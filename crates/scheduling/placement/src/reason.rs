//! Why a node cannot take a pod.

use std::collections::BTreeMap;
use std::fmt;

use tessera_cluster::node_fit::Refusal;

/// Why a node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Refusal based on the Node object alone.
    Refused(String),
    /// Too few free devices.
    Devices,
    /// Enough devices, but no other room for the pod. Evicting pods of lower priority could make room.
    Room(String),
    /// kube-scheduler refused the node recently.
    RefusedBefore,
    /// Reserved for pods ahead in the queue.
    Kept,
    /// No Node object has this name.
    NoNode,
    /// One claim asks for a managed card together with a device of another driver.
    Mixed,
    /// None of the node's managed cards matches a request.
    NotManaged,
    /// The devices would exceed a limit of the team.
    TeamLimit,
}

/// Kinds of changes able to clear a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearsOn {
    /// A change of the node: its object, its devices, or the held devices and room.
    Node,
    /// Passing of time.
    Time,
    /// Evaluation of its selectors, a limited amount at a time.
    Cost,
    /// Another pod: one ahead in the queue is served or stops waiting.
    Others,
    /// Only a change of the pod's claims.
    Pod,
}

impl Reason {
    /// Reason for a refusal based on the Node object alone.
    pub fn refused(refusal: &Refusal) -> Self {
        Reason::Refused(refusal.to_string())
    }

    /// Kind of change able to clear the reason.
    #[must_use]
    pub fn clears_on(&self) -> ClearsOn {
        match self {
            Reason::Refused(_) | Reason::Devices | Reason::Room(_) | Reason::NoNode | Reason::NotManaged => {
                ClearsOn::Node
            }
            Reason::RefusedBefore => ClearsOn::Time,
            Reason::Kept | Reason::TeamLimit => ClearsOn::Others,
            Reason::Mixed => ClearsOn::Pod,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Reason::Devices => "not enough free devices",
            Reason::Refused(text) | Reason::Room(text) => text,
            Reason::RefusedBefore => "kube-scheduler refused the pod's like there",
            Reason::Kept => "kept for pods that go first",
            Reason::NoNode => "no Node of that name",
            Reason::Mixed => {
                "one claim asks for a managed GPU and for a device of another driver, which nobody allocates: make it two claims"
            }
            Reason::NotManaged => "no managed GPU that it asks for",
            Reason::TeamLimit => "its devices would exceed its team's limit",
        })
    }
}

/// Keeps the sentence within the 1,024 bytes of an Event's message.
const MOST_REASONS: usize = 5;

/// Blocked nodes by reason in one sentence: `0 of 3 nodes with GPUs can take it; 2: not enough free devices; 1: no Node of that name`.
pub(crate) fn sentence<'r>(reasons: impl Iterator<Item = (&'r Reason, usize)>) -> String {
    let mut counts: BTreeMap<&Reason, usize> = BTreeMap::new();
    for (reason, nodes) in reasons {
        *counts.entry(reason).or_default() += nodes;
    }
    let nodes: usize = counts.values().sum();
    let mut parts: Vec<(&Reason, usize)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    parts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let left = parts.len().saturating_sub(MOST_REASONS);
    let mut text: Vec<String> =
        parts.into_iter().take(MOST_REASONS).map(|(reason, count)| format!("{count}: {reason}")).collect();
    if left > 0 {
        text.push(format!("{left} more reasons"));
    }
    let noun = if nodes == 1 { "node" } else { "nodes" };
    format!("0 of {nodes} {noun} with GPUs can take it; {}", text.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_by_reason() {
        let of = |counts: &[(Reason, usize)]| sentence(counts.iter().map(|(reason, count)| (reason, *count)));
        assert_eq!(
            of(&[(Reason::Devices, 1)]),
            "0 of 1 node with GPUs can take it; 1: not enough free devices"
        );
        assert_eq!(
            of(&[(Reason::NoNode, 1), (Reason::Devices, 2)]),
            "0 of 3 nodes with GPUs can take it; 2: not enough free devices; 1: no Node of that name"
        );
    }
}
