//! Nodes, pods and writes without success: each is tried again after a growing pause.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::RefusedNodes;
use tessera_placement::Time;

use crate::backoff::Backoff;
use crate::intent::PodReference;

/// How long pods of the same owner are not sent to a node after the first refusal there.
const NODE: Time = Time::from_secs(300);

/// The same after many refusals.
const NODE_LONGEST: Time = Time::from_secs(1_800);

/// Least pause of a node, for each refusing node of the owner. A try takes half of the time at most: however many nodes refuse the
/// owner's pods, the others get their turn before the refusing ones all come again.
const EACH_NODE: Time = Time::from_secs(60);

/// How long a pod gets no devices after the first failure unrelated to its node, and after many.
const POD: Time = Time::from_secs(30);
const POD_LONGEST: Time = Time::from_secs(600);

/// Pause after the first failed write for a pod, and after many.
const WRITE: Time = Time::from_secs(1);
const WRITE_LONGEST: Time = Time::from_secs(30);

/// What failed, and the pauses.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// Nodes on which kube-scheduler refused a pod for reasons not predicted by this crate, by owner of the pod.
    nodes: Backoff<(String, String)>,
    /// Pods nobody binds, or nobody may change.
    pods: Backoff<PodReference>,
    why: BTreeMap<PodReference, String>,
    /// Pods with failed writes.
    writes: Backoff<PodReference>,
}

impl Default for Refusals {
    fn default() -> Self {
        Refusals {
            nodes: Backoff::new(NODE, NODE_LONGEST),
            pods: Backoff::new(POD, POD_LONGEST),
            why: BTreeMap::new(),
            writes: Backoff::new(WRITE, WRITE_LONGEST),
        }
    }
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
    /// Records a refusal of a node.
    pub fn add(&mut self, owner: String, node: &str, now: Time) {
        let refused = self.nodes_of(&owner).filter(|(_, until)| *until > now).count();
        let least = EACH_NODE.saturating_mul(u32::try_from(refused).unwrap_or(u32::MAX));
        self.nodes.fail_for((owner, node.to_owned()), now, least);
    }

    /// Merges the annotation of a pod. Anybody allowed to change the pod may have written the annotation.
    pub fn learn(&mut self, owner: &str, noted: &RefusedNodes, now: Time) {
        for (node, until) in noted.iter() {
            let Ok(until) = u64::try_from(until.as_second()) else { continue };
            let until = Time::from_secs(until).min(now + NODE_LONGEST);
            self.nodes.restore((owner.to_owned(), node.to_owned()), until, now);
        }
    }

    /// Content of the annotation for pods of this owner.
    pub fn to_note(&self, owner: &str) -> RefusedNodes {
        let mut nodes = RefusedNodes::default();
        for (node, until) in self.nodes_of(owner) {
            let until =
                i64::try_from(until.as_secs()).ok().and_then(|until| Timestamp::from_second(until).ok());
            if let Some(until) = until {
                nodes.refuse(node.to_owned(), until);
            }
        }
        nodes
    }

    /// Nodes with refusals of the owner's pods, each with the end of its pause, over or not.
    fn nodes_of(&self, owner: &str) -> impl Iterator<Item = (&str, Time)> {
        let all = self.nodes.from((owner.to_owned(), String::new()));
        let own = all.take_while(move |((other, _), _)| other == owner);
        own.map(|((_, node), until)| (node.as_str(), until))
    }

    pub fn contains(&self, owner: &str, node: &str, now: Time) -> bool {
        self.nodes.is_paused(&(owner.to_owned(), node.to_owned()), now)
    }

    /// Whether any node refused pods of this owner lately.
    pub fn has_any(&self, owner: &str) -> bool {
        self.nodes_of(owner).next().is_some()
    }

    /// Number of nodes refusing the owner's pods.
    pub fn count(&self, owner: &str, now: Time) -> usize {
        self.nodes_of(owner).filter(|(_, until)| *until > now).count()
    }

    /// Records why the pod gets no devices for a while, at least for `least`.
    pub fn pause(&mut self, pod: PodReference, why: String, now: Time, least: Time) {
        self.pods.fail_for(pod.clone(), now, least);
        self.why.insert(pod, why);
    }

    /// Why the pod gets no devices, and until when.
    pub fn paused(&self, pod: &PodReference, now: Time) -> Option<(&str, Time)> {
        let until = self.pods.until(pod, now)?;
        Some((self.why.get(pod)?.as_str(), until))
    }

    /// Records the outcome of writes for a pod. Returns when to try again after a failure.
    pub fn written(&mut self, pod: &PodReference, is_done: bool, now: Time) -> Time {
        if is_done {
            self.writes.succeed(pod);
            return now;
        }
        self.writes.fail(pod.clone(), now)
    }

    /// The pod is bound or gone.
    pub fn forget(&mut self, pod: &PodReference) {
        self.pods.succeed(pod);
        self.why.remove(pod);
        self.writes.succeed(pod);
    }

    /// Ends pauses of nodes. Returns whether any ended since the last call.
    pub fn end(&mut self, now: Time) -> bool {
        self.nodes.end(now)
    }

    /// When the next pause of a node ends.
    pub fn next_end(&self) -> Option<Time> {
        self.nodes.next_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    /// Else a pod would be sent to the first node again before the last one was tried.
    #[test]
    fn all_nodes_are_tried_before_the_first_one_again() {
        let mut refusals = Refusals::default();
        // A try takes half a minute.
        for node in 0..200 {
            refusals.add("o".to_owned(), &format!("n{node}"), at(30 * node));
        }
        let later = at(30 * 199);
        // In time the first ones come again, though the pause of each is not much longer than necessary.
        assert!(!refusals.contains("o", "n0", later) && refusals.contains("o", "n120", later));
        for node in 0..100 {
            refusals.add("o".to_owned(), &format!("n{node}"), later + at(30 * node));
        }
        assert!((0..100).all(|node| refusals.contains("o", &format!("n{node}"), later + at(3_000))));
    }

    #[test]
    fn what_was_noted_is_learnt_and_known_ends_remain() {
        let (mut refusals, mut next) = (Refusals::default(), Refusals::default());
        refusals.add("o".to_owned(), "a", at(0));
        refusals.add("o".to_owned(), "a", at(300));
        next.learn("o", &refusals.to_note("o"), at(310));
        assert!(next.contains("o", "a", at(899)) && !next.contains("o", "a", at(900)));
        assert_eq!((next.count("o", at(310)), next.count("other", at(310))), (1, 0));
        next.add("o".to_owned(), "a", at(900));
        assert!(next.contains("o", "a", at(900 + 1_199)));
        // Anybody may have written any time.
        let mut far = RefusedNodes::default();
        far.refuse("b".to_owned(), Timestamp::from_second(1_000_000).unwrap());
        next.learn("o", &far, at(0));
        assert!(!next.contains("o", "b", NODE_LONGEST));
    }
}
