//! Nodes on which kube-scheduler refused a pod for reasons not predicted by this crate.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::RefusedNodes;
use tessera_placement::Time;

/// How long pods of the same owner are not sent to a node after a refusal there.
const KEPT: Time = Time::from_secs(300);

/// Nodes with recent refusals, by owner of the refused pods.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    until: BTreeMap<(String, String), Time>,
}

/// Identity shared by similar pods: their namespace with the uid of their controller, else their own uid. The namespace is needed
/// because anybody may set the uid of another namespace's Job as a pod's controller.
pub(crate) fn owner(pod: &Pod) -> String {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    let uid = controller.map(|owner| &owner.uid).or(pod.metadata.uid.as_ref());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", uid.map(String::as_str).unwrap_or_default())
}

impl Refusals {
    pub fn add(&mut self, owner: String, node: &str, now: Time) {
        self.until.retain(|_, until| *until > now);
        self.until.insert((owner, node.to_owned()), now + KEPT);
    }

    /// Merges the annotation of a pod. Anybody allowed to change the pod may have written the annotation.
    pub fn learn(&mut self, owner: &str, noted: &RefusedNodes, now: Time) {
        for (node, until) in noted.iter() {
            let Ok(until) = u64::try_from(until.as_second()) else { continue };
            let known = self.until.entry((owner.to_owned(), node.to_owned())).or_default();
            *known = (*known).max(Time::from_secs(until).min(now + KEPT));
        }
    }

    /// Content of the annotation for pods of this owner.
    pub fn to_note(&self, owner: &str) -> RefusedNodes {
        let mut nodes = RefusedNodes::default();
        for ((_, node), until) in self.until.iter().filter(|((other, _), _)| other == owner) {
            let until =
                i64::try_from(until.as_secs()).ok().and_then(|until| Timestamp::from_second(until).ok());
            if let Some(until) = until {
                nodes.refuse(node.clone(), until);
            }
        }
        nodes
    }

    pub fn contains(&self, owner: &str, node: &str, now: Time) -> bool {
        self.until.get(&(owner.to_owned(), node.to_owned())).is_some_and(|until| *until > now)
    }

    /// Whether any node recently refused pods of this owner.
    pub fn has_any(&self, owner: &str) -> bool {
        let first = (owner.to_owned(), String::new());
        self.until.range(first..).next().is_some_and(|((other, _), _)| other == owner)
    }

    /// Drops expired refusals.
    pub fn remove_ended(&mut self, now: Time) {
        self.until.retain(|_, until| *until > now);
    }

    /// When the next refusal expires.
    pub fn next_end(&self) -> Option<Time> {
        self.until.values().min().copied()
    }
}
