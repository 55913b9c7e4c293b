//! Nodes on which kube-scheduler refused a pod, for reasons that this crate does not foresee.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::Time;

/// How long pods of the same owner are not sent to a node that refused one of them.
const KEPT: Time = Time::from_secs(300);

/// Nodes that refused pods, by the pods' owner.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    until: BTreeMap<(String, String), Time>,
}

/// What pods that are like each other have in common: the uid of their controller, else their own.
pub(crate) fn owner(pod: &Pod) -> String {
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.clone()).or_else(|| pod.metadata.uid.clone()).unwrap_or_default()
}

impl Refusals {
    pub fn add(&mut self, owner: String, node: &str, now: Time) {
        self.until.retain(|_, until| *until > now);
        self.until.insert((owner, node.to_owned()), now + KEPT);
    }

    pub fn contains(&self, owner: &str, node: &str, now: Time) -> bool {
        self.until.get(&(owner.to_owned(), node.to_owned())).is_some_and(|until| *until > now)
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
