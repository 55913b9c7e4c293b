//! Pods with a write in flight, or awaiting a verdict of kube-scheduler.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;

use crate::intent::PodReference;
use tessera_placement::Time;

/// A node proposed for a pod.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub node: String,
    /// Claims without devices and with other possible users: their pods must go to the same node.
    pub shared: Vec<Key>,
    /// Whether its claims were observed with devices, or it needs none there.
    pub is_allocated: bool,
    /// Set if this controller allocates its devices.
    pub managed: Option<ManagedProposal>,
}

/// A proposal with devices from this controller.
#[derive(Debug, Clone)]
pub(crate) struct ManagedProposal {
    /// kube-scheduler's verdict on the pod before the allocation.
    pub verdict_before: Option<String>,
    /// Deadline: if kube-scheduler still reports no node by then, it has rejected this one.
    pub due: Time,
    /// Claims being allocated for the pod.
    pub claims: Vec<Key>,
}

#[derive(Debug)]
struct Row {
    pod: PodReference,
    /// A write for the pod is unanswered.
    is_writing: bool,
    /// Its gate is being removed, without a proposal or together with the whole gang.
    is_released: bool,
    /// Released to a node by another replica, or by this process before a restart: its devices are not predicted yet.
    is_adopted: bool,
    proposal: Option<Proposal>,
}

impl Row {
    fn new(pod: PodReference) -> Self {
        Row { pod, is_writing: false, is_released: false, is_adopted: false, proposal: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct PodWrites {
    rows: BTreeMap<Key, Row>,
}

impl PodWrites {
    /// The row of this pod; drops the row of an earlier pod with the same name.
    fn row(&mut self, pod: &PodReference) -> &mut Row {
        let row = self.rows.entry(pod.key.clone()).or_insert_with(|| Row::new(pod.clone()));
        if row.pod != *pod {
            *row = Row::new(pod.clone());
        }
        row
    }

    /// Removes an empty row.
    fn tidy(&mut self, pod: &Key) {
        let is_empty =
            |row: &Row| !row.is_writing && !row.is_released && !row.is_adopted && row.proposal.is_none();
        if self.rows.get(pod).is_some_and(is_empty) {
            self.rows.remove(pod);
        }
    }

    /// Records a write in flight for the pod.
    pub fn write(&mut self, pod: &PodReference) {
        self.row(pod).is_writing = true;
    }

    /// Records the answer to [`Self::write`].
    pub fn answer(&mut self, pod: &PodReference) {
        if let Some(row) = self.rows.get_mut(&pod.key).filter(|row| row.pod == *pod) {
            row.is_writing = false;
            self.tidy(&pod.key);
        }
    }

    /// Whether a write for the pod is unanswered.
    pub fn is_writing(&self, pod: &PodReference) -> bool {
        self.rows.get(&pod.key).is_some_and(|row| row.pod == *pod && row.is_writing)
    }

    /// Records the removal of the pod's gate.
    pub fn release(&mut self, pod: &PodReference) {
        self.row(pod).is_released = true;
    }

    /// Ends a release: the pod was observed without its gate, or removing the gate failed.
    pub fn end_release(&mut self, pod: &Key) {
        if let Some(row) = self.rows.get_mut(pod) {
            row.is_released = false;
            self.tidy(pod);
        }
    }

    /// Whether the pod's gate is being removed.
    pub fn is_released(&self, pod: &Key) -> bool {
        self.rows.get(pod).is_some_and(|row| row.is_released)
    }

    /// Records the node proposed for the pod.
    pub fn propose(&mut self, pod: &PodReference, proposal: Proposal) {
        let row = self.row(pod);
        row.proposal = Some(proposal);
        row.is_adopted = false;
    }

    /// Records a pod released to a node by another process.
    pub fn adopt(&mut self, pod: &PodReference) {
        self.row(pod).is_adopted = true;
    }

    /// The pod is not on its way any more, or changed.
    pub fn end_adoption(&mut self, pod: &Key) {
        if let Some(row) = self.rows.get_mut(pod) {
            row.is_adopted = false;
            self.tidy(pod);
        }
    }

    /// Pods released by another process whose devices are not predicted yet.
    pub fn adopted(&self) -> impl Iterator<Item = &Key> {
        self.rows.iter().filter(|(_, row)| row.is_adopted).map(|(pod, _)| pod)
    }

    /// Removes a proposal, carried out or obsolete.
    pub fn end_proposal(&mut self, pod: &Key) -> Option<Proposal> {
        let proposal = self.rows.get_mut(pod)?.proposal.take();
        self.tidy(pod);
        proposal
    }

    /// The pod's proposal.
    pub fn proposal(&self, pod: &Key) -> Option<&Proposal> {
        self.rows.get(pod)?.proposal.as_ref()
    }

    /// As [`Self::proposal`].
    pub fn proposal_mut(&mut self, pod: &Key) -> Option<&mut Proposal> {
        self.rows.get_mut(pod)?.proposal.as_mut()
    }

    fn proposals(&self) -> impl Iterator<Item = (&Key, &Proposal)> {
        self.rows.iter().filter_map(|(pod, row)| Some((pod, row.proposal.as_ref()?)))
    }

    /// Number of pods with a proposal.
    pub fn proposed(&self) -> usize {
        self.proposals().count()
    }

    /// Pods of the namespace with a proposal.
    pub fn proposed_in<'l>(&'l self, namespace: &'l str) -> impl Iterator<Item = &'l Key> {
        self.proposals().map(|(pod, _)| pod).filter(move |pod| pod.namespace == namespace)
    }

    /// Pods proposed to these nodes but without devices from kube-scheduler yet, each with its node.
    pub fn open_on(&self, nodes: &BTreeSet<String>) -> Vec<(Key, String)> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let open = self.proposals().filter(|(_, proposal)| {
            proposal.managed.is_none() && !proposal.is_allocated && nodes.contains(&proposal.node)
        });
        open.map(|(pod, proposal)| (pod.clone(), proposal.node.clone())).collect()
    }

    /// Pods with devices from this controller, not bound by their deadline.
    pub fn overdue(&self, now: Time) -> Vec<Key> {
        let due = self.deadlines().filter(|(_, due)| *due <= now);
        due.map(|(pod, _)| pod.clone()).collect()
    }

    /// Earliest deadline.
    pub fn next_due(&self) -> Option<Time> {
        self.deadlines().map(|(_, due)| due).min()
    }

    fn deadlines(&self) -> impl Iterator<Item = (&Key, Time)> {
        let allocated = self.proposals().filter(|(_, proposal)| proposal.is_allocated);
        allocated.filter_map(|(pod, proposal)| Some((pod, proposal.managed.as_ref()?.due)))
    }

    /// The node proposed for another pod with one of these claims.
    pub fn node_of_claims(&self, claims: &[Key]) -> Option<&str> {
        let shares = |proposal: &Proposal| proposal.shared.iter().any(|shared| claims.contains(shared));
        self.proposals().find(|(_, proposal)| shares(proposal)).map(|(_, proposal)| proposal.node.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> PodReference {
        PodReference { key: Key::new("team", "pod"), uid: uid.to_owned() }
    }

    fn proposal() -> Proposal {
        Proposal { node: "a".to_owned(), shared: Vec::new(), is_allocated: false, managed: None }
    }

    #[test]
    fn a_write_without_an_answer_outlives_the_proposal() {
        let mut pods = PodWrites::default();
        let one = pod("1");
        pods.propose(&one, proposal());
        pods.write(&one);
        assert!(pods.end_proposal(&one.key).is_some() && pods.is_writing(&one));
        pods.answer(&one);
        assert!(!pods.is_writing(&one) && pods.rows.is_empty());
    }

    #[test]
    fn an_earlier_pod_of_the_name_leaves_nothing() {
        let mut pods = PodWrites::default();
        let (one, next) = (pod("1"), pod("2"));
        pods.propose(&one, proposal());
        pods.write(&one);
        pods.release(&next);
        assert!(!pods.is_writing(&one) && !pods.is_writing(&next) && pods.proposal(&next.key).is_none());
        pods.write(&next);
        pods.answer(&one);
        assert!(pods.is_writing(&next) && pods.is_released(&next.key));
    }
}
