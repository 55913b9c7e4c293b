//! Pods for which something is written, or of which kube-scheduler has yet to say what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;

use crate::intent::PodReference;
use tessera_placement::Time;

/// A node that was proposed for a pod.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub node: String,
    /// Claims without devices that other pods may use, too: those pods must follow it.
    pub shared: Vec<Key>,
    /// Its claims were seen with devices, or it needs none there.
    pub is_allocated: bool,
    /// Where this controller allocates its devices.
    pub managed: Option<ManagedProposal>,
}

/// A proposal with devices from this controller.
#[derive(Debug, Clone)]
pub(crate) struct ManagedProposal {
    /// kube-scheduler's verdict on the pod before.
    pub verdict_before: Option<String>,
    /// Deadline: if kube-scheduler still reports that it finds no node, it rejected this one.
    pub due: Time,
    /// Claims to which devices are written for it.
    pub claims: Vec<Key>,
}

/// A pod's row.
#[derive(Debug)]
struct Row {
    pod: PodReference,
    /// A write for the pod has no answer yet.
    is_writing: bool,
    /// Its gate is being removed, without a proposal or with all of its gang.
    is_released: bool,
    proposal: Option<Proposal>,
}

impl Row {
    fn new(pod: PodReference) -> Self {
        Row { pod, is_writing: false, is_released: false, proposal: None }
    }
}

/// Rows by pod.
#[derive(Debug, Default)]
pub(crate) struct PodWrites {
    rows: BTreeMap<Key, Row>,
}

impl PodWrites {
    /// The row of this pod; of an earlier pod with its name nothing is kept.
    fn row(&mut self, pod: &PodReference) -> &mut Row {
        let row = self.rows.entry(pod.key.clone()).or_insert_with(|| Row::new(pod.clone()));
        if row.pod != *pod {
            *row = Row::new(pod.clone());
        }
        row
    }

    /// Removes the row if it says nothing any more.
    fn tidy(&mut self, pod: &Key) {
        let is_empty = |row: &Row| !row.is_writing && !row.is_released && row.proposal.is_none();
        if self.rows.get(pod).is_some_and(is_empty) {
            self.rows.remove(pod);
        }
    }

    /// Something is written for the pod from now on.
    pub fn write(&mut self, pod: &PodReference) {
        self.row(pod).is_writing = true;
    }

    /// The answer to [`Self::write`].
    pub fn answer(&mut self, pod: &PodReference) {
        if let Some(row) = self.rows.get_mut(&pod.key).filter(|row| row.pod == *pod) {
            row.is_writing = false;
            self.tidy(&pod.key);
        }
    }

    /// Whether a write for the pod has no answer yet.
    pub fn is_writing(&self, pod: &PodReference) -> bool {
        self.rows.get(&pod.key).is_some_and(|row| row.pod == *pod && row.is_writing)
    }

    /// The pod's gate is removed from now on.
    pub fn release(&mut self, pod: &PodReference) {
        self.row(pod).is_released = true;
    }

    /// The pod was seen without its gate, or its gate could not be removed.
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

    /// The node is proposed for the pod from now on.
    pub fn propose(&mut self, pod: &PodReference, proposal: Proposal) {
        self.row(pod).proposal = Some(proposal);
    }

    /// The proposal is carried out, or is over.
    pub fn end_proposal(&mut self, pod: &Key) -> Option<Proposal> {
        let proposal = self.rows.get_mut(pod)?.proposal.take();
        self.tidy(pod);
        proposal
    }

    /// What was proposed for the pod.
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

    /// Pods proposed to these nodes to which kube-scheduler has not given devices yet, each with its node.
    pub fn open_on(&self, nodes: &BTreeSet<String>) -> Vec<(Key, String)> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let open = self.proposals().filter(|(_, proposal)| {
            proposal.managed.is_none() && !proposal.is_allocated && nodes.contains(&proposal.node)
        });
        open.map(|(pod, proposal)| (pod.clone(), proposal.node.clone())).collect()
    }

    /// Pods with devices from this controller that are not bound at `now`, and should be.
    pub fn overdue(&self, now: Time) -> Vec<Key> {
        let due = self.deadlines().filter(|(_, due)| *due <= now);
        due.map(|(pod, _)| pod.clone()).collect()
    }

    /// When the next one is overdue.
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
