//! Why a node cannot take a pod.

use std::collections::BTreeMap;
use std::fmt;

use tessera_cluster::node_fit::Refusal;

/// Why a node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its Node object says so.
    Refused(String),
    /// Too few free devices.
    Devices,
    /// It has the devices, but no room for the pod besides. Pods of lower priority could make room.
    Room(String),
    /// kube-scheduler refused it there a short while ago.
    RefusedBefore,
    /// Nobody behind those that go first may have it.
    Kept,
    /// There is no such Node.
    NoNode,
    /// One of its claims asks for a managed card and for a device of another driver.
    Mixed,
    /// It has no managed card that is asked for.
    NotManaged,
}

/// What can make an end of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearsOn {
    /// A change of the node: of its object, its devices, or what is held of them and of its room.
    Node,
    /// Time.
    Time,
    /// What is found out about its selectors, some of it at a time.
    Cost,
    /// Somebody else: who goes first gets what it waits for, or waits no more.
    Others,
    /// Nothing but other claims of the pod's.
    Pod,
}

impl Reason {
    /// For a refusal that depends on the Node object alone.
    pub fn refused(refusal: &Refusal) -> Self {
        Reason::Refused(refusal.to_string())
    }

    /// What can make an end of it.
    #[must_use]
    pub fn clears_on(&self) -> ClearsOn {
        match self {
            Reason::Refused(_) | Reason::Devices | Reason::Room(_) | Reason::NoNode | Reason::NotManaged => {
                ClearsOn::Node
            }
            Reason::RefusedBefore => ClearsOn::Time,
            Reason::Kept => ClearsOn::Others,
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
        })
    }
}

/// An Event's message has at most 1,024 bytes.
const MOST_REASONS: usize = 5;

/// Nodes by what blocks them, as one sentence: `0 of 3 nodes can take it: 2 have too few free devices, 1: it is cordoned`.
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
    format!("0 of {nodes} nodes with GPUs can take it; {}", text.join("; "))
}
