//! Nodes on which kube-scheduler refused a pod, for reasons that this crate does not foresee.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::RefusedNodes;
use tessera_placement::Time;

/// How long pods of the same owner are not sent to a node that refused one of them.
const KEPT: Time = Time::from_secs(300);

/// Nodes that refused pods, by the pods' owner.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    until: BTreeMap<(String, String), Time>,
}

/// What pods that are like each other have in common: their namespace with the uid of their controller, else their own. Anybody may write
/// the uid of another namespace's Job on a pod as that of its controller.
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

    /// Takes in what stands on a pod. Anybody who may change the pod may have written it.
    pub fn learn(&mut self, owner: &str, noted: &RefusedNodes, now: Time) {
        for (node, until) in noted.iter() {
            let Ok(until) = u64::try_from(until.as_second()) else { continue };
            let known = self.until.entry((owner.to_owned(), node.to_owned())).or_default();
            *known = (*known).max(Time::from_secs(until).min(now + KEPT));
        }
    }

    /// What is to stand on a pod of this owner.
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

    /// Whether any node refused pods of this owner a short while ago.
    pub fn has_any(&self, owner: &str) -> bool {
        let first = (owner.to_owned(), String::new());
        self.until.range(first..).next().is_some_and(|((other, _), _)| other == owner)
    }

    /// Forgets those that have ended.
    pub fn remove_ended(&mut self, now: Time) {
        self.until.retain(|_, until| *until > now);
    }

    /// When the next one ends.
    pub fn next_end(&self) -> Option<Time> {
        self.until.values().min().copied()
    }
}
