//! Why a node cannot take a pod.

use std::collections::BTreeMap;

use tessera_cluster::node_fit::Refusal;

/// Why a node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocked {
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

impl Blocked {
    /// For a refusal that depends on the Node object alone.
    pub fn refused(refusal: &Refusal) -> Self {
        Blocked::Refused(refusal.to_string())
    }
}

/// Nodes by what blocks them, as one sentence: `0 of 3 nodes can take it: 2 have too few free devices, 1: it is cordoned`.
pub fn sentence<'b>(nodes: usize, blocked: impl Iterator<Item = &'b Blocked>) -> String {
    let mut counts: BTreeMap<&Blocked, usize> = BTreeMap::new();
    for reason in blocked {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<(usize, String)> = counts
        .into_iter()
        .map(|(reason, count)| {
            let text = match reason {
                Blocked::Devices => "not enough free devices".to_owned(),
                Blocked::Refused(text) | Blocked::Room(text) => text.clone(),
                Blocked::RefusedBefore => "kube-scheduler refused the pod's like there".to_owned(),
                Blocked::Kept => "kept for pods that go first".to_owned(),
                Blocked::NoNode => "no Node of that name".to_owned(),
                Blocked::Mixed => "one claim asks for a managed GPU and for a device of another driver, \
                                   which nobody allocates: make it two claims"
                    .to_owned(),
                Blocked::NotManaged => "no managed GPU that it asks for".to_owned(),
            };
            (count, text)
        })
        .collect();
    parts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let left = parts.len().saturating_sub(MOST_REASONS);
    let mut text: Vec<String> =
        parts.into_iter().take(MOST_REASONS).map(|(count, text)| format!("{count}: {text}")).collect();
    if left > 0 {
        text.push(format!("{left} more reasons"));
    }
    format!("0 of {nodes} nodes with GPUs can take it; {}", text.join("; "))
}

/// An Event's message has at most 1,024 bytes.
const MOST_REASONS: usize = 5;
