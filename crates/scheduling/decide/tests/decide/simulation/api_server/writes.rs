//! Writes of the controller, and the answers.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use tessera_api::gang::FORMED_ANNOTATION;
use tessera_api::gpu_pool::IDLE_EVICTED_ANNOTATION;
use tessera_api::managed::{
    EPOCH_ANNOTATION, NOMINATION_ANNOTATION, Nomination, REFUSED_NODES_ANNOTATION, RefusedNodes,
};
use tessera_api::steering::GATE;
use tessera_decide::{ClaimReference, PodReference};

use super::{Server, gates, is_running};
use crate::simulation::bug::Bug;
use crate::simulation::surroundings::Surroundings;
use crate::simulation::{checks, kubernetes};

/// The API server's answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    NotFound,
    Conflict,
    /// The write is impossible: 422, or 403 by a policy.
    Invalid,
    /// A disruption budget protects the pod.
    Kept,
    /// The API server failed. Nothing was done, unless a fault says so.
    Error,
}

/// Annotation of objects the controller cannot change, because of a policy or their size.
pub const REFUSES_WRITES: &str = "refuses-writes";

pub fn refuses_writes(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|all| all.contains_key(REFUSES_WRITES))
}

impl Server {
    fn found_claim(&self, around: &Surroundings, claim: &ClaimReference) -> Result<&ResourceClaim, Answer> {
        let found = self.claim(&claim.key).ok_or(Answer::NotFound)?;
        if refuses_writes(&found.metadata) {
            return Err(Answer::Invalid);
        }
        let is_same = found.metadata.uid.as_ref() == Some(&claim.uid)
            && found.metadata.resource_version.as_ref() == Some(&claim.resource_version);
        if is_same || around.has(Bug::VersionNotChecked) { Ok(found) } else { Err(Answer::Conflict) }
    }

    /// Writes the epoch on a claim, unless already there.
    pub fn mark(&mut self, around: &mut Surroundings, claim: &ClaimReference, epoch: &str) -> Answer {
        let annotations = match self.found_claim(around, claim) {
            Err(answer) => return answer,
            Ok(found) => found.metadata.annotations.as_ref(),
        };
        if annotations.and_then(|all| all.get(EPOCH_ANNOTATION)).map(String::as_str) != Some(epoch) {
            self.update_claim(around, &claim.key, |found| {
                let annotations = found.metadata.annotations.get_or_insert_default();
                annotations.insert(EPOCH_ANNOTATION.to_owned(), epoch.to_owned());
            });
        }
        Answer::Done
    }

    /// Writes an allocation.
    pub fn allocate(
        &mut self,
        around: &mut Surroundings,
        claim: &ClaimReference,
        allocation: &AllocationResult,
    ) -> Answer {
        match self.found_claim(around, claim) {
            Err(answer) => return answer,
            Ok(found) if found.status.as_ref().is_some_and(|status| status.allocation.is_some()) => {
                return Answer::Invalid;
            }
            Ok(_) => {}
        }
        let now = Timestamp::from_millisecond(i64::try_from(around.now.as_millis()).unwrap()).unwrap();
        self.update_claim(around, &claim.key, |found| {
            let mut allocation = allocation.clone();
            allocation.allocation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
            found.status.get_or_insert_default().allocation = Some(allocation);
        });
        Answer::Done
    }

    /// Removes an allocation without a reservation.
    pub fn clear(&mut self, around: &mut Surroundings, claim: &ClaimReference) -> Answer {
        match self.found_claim(around, claim) {
            Err(answer) => return answer,
            Ok(found) => {
                let users = found.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
                if users.count() > 0 {
                    return Answer::Invalid;
                }
            }
        }
        self.update_claim(around, &claim.key, |found| found.status.get_or_insert_default().allocation = None);
        Answer::Done
    }

    /// Records the refusing nodes on the pod, and the size of a gang that shrank.
    pub fn note(
        &mut self,
        around: &mut Surroundings,
        pod: &PodReference,
        nodes: &RefusedNodes,
        (formed, idle_evicted): (Option<usize>, Option<&String>),
    ) -> Answer {
        if let Err(answer) = self.found(around, pod) {
            return answer;
        }
        self.update_pod(around, &pod.key, |found| {
            let annotations = found.metadata.annotations.get_or_insert_default();
            annotations.insert(REFUSED_NODES_ANNOTATION.to_owned(), nodes.encode().unwrap_or_default());
            annotations.extend(formed.map(|formed| (FORMED_ANNOTATION.to_owned(), formed.to_string())));
            annotations.extend(idle_evicted.map(|uid| (IDLE_EVICTED_ANNOTATION.to_owned(), uid.clone())));
        });
        Answer::Done
    }

    fn found(&self, around: &Surroundings, pod: &PodReference) -> Result<&Pod, Answer> {
        let found = self.pod(&pod.key).ok_or(Answer::NotFound)?;
        if refuses_writes(&found.metadata) {
            return Err(Answer::Invalid);
        }
        let is_same = found.metadata.uid.as_ref() == Some(&pod.uid);
        if is_same || around.has(Bug::UidNotChecked) { Ok(found) } else { Err(Answer::Conflict) }
    }

    /// Writes `status.nominatedNodeName`.
    pub fn nominate(&mut self, around: &mut Surroundings, pod: &PodReference, node: &str) -> Answer {
        match self.found(around, pod) {
            Err(answer) => return answer,
            Ok(found) if found.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) => {
                return Answer::Invalid;
            }
            Ok(_) => {}
        }
        self.update_pod(around, &pod.key, |found| {
            found.status.get_or_insert_default().nominated_node_name = Some(node.to_owned());
        });
        Answer::Done
    }

    /// Writes the nomination on the pod, or removes it.
    pub fn note_nomination(
        &mut self,
        around: &mut Surroundings,
        pod: &PodReference,
        nomination: Option<&Nomination>,
    ) -> Answer {
        if let Err(answer) = self.found(around, pod) {
            return answer;
        }
        let text = nomination.map(Nomination::encode);
        self.update_pod(around, &pod.key, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.remove(NOMINATION_ANNOTATION);
            annotations.extend(text.map(|text| (NOMINATION_ANNOTATION.to_owned(), text)));
        });
        Answer::Done
    }

    /// Evicts the pod.
    pub fn evict(&mut self, around: &mut Surroundings, pod: &PodReference) -> Answer {
        let found = match self.found(around, pod) {
            Err(answer) => return answer,
            Ok(found) => found,
        };
        // Like the API server, let budgets protect only running pods.
        let is_running = is_running(found);
        let budgets = if is_running { self.budgets_of(found) } else { Vec::new() };
        if budgets.iter().any(|budget| budget.status.disruptions_allowed == 0) {
            around.note(|| format!("a disruption budget keeps {}", pod.key.name));
            return Answer::Kept;
        }
        for mut budget in budgets {
            budget.status.disruptions_allowed -= 1;
            self.apply(around, budget);
        }
        self.evictions += 1;
        kubernetes::delete_pod(around, self, &pod.key);
        Answer::Done
    }

    /// Removes our gate. With `is_steer` a node must have been nominated before. With `formed` the pod is annotated, too.
    pub fn lift(
        &mut self,
        around: &mut Surroundings,
        pod: &PodReference,
        is_steer: bool,
        formed: Option<usize>,
    ) -> Answer {
        let found = match self.found(around, pod) {
            Err(answer) => return answer,
            Ok(found) => found,
        };
        let gates = gates(found);
        if !gates.contains(&GATE.to_owned()) {
            return Answer::Done;
        }
        let nominated = found.status.as_ref().and_then(|status| status.nominated_node_name.as_ref());
        if found.metadata.uid.as_ref() != Some(&pod.uid) {
            around.violated(|| format!("{}: the gate of another pod of this name was lifted", pod.key.name));
        } else if gates.len() > 1 {
            around.violated(|| format!("{}: lifted while it has other gates: {gates:?}", pod.key.name));
        } else if is_steer && nominated.is_none() {
            around.violated(|| format!("{}: lifted before a node was proposed", pod.key.name));
        }
        checks::gangs::lifted(around, &found.clone());
        self.update_pod(around, &pod.key, |found| {
            let gates = &mut found.spec.get_or_insert_default().scheduling_gates;
            gates.iter_mut().for_each(|gates| gates.retain(|gate| gate.name != GATE));
            if let Some(formed) = formed {
                let annotations = found.metadata.annotations.get_or_insert_default();
                annotations.insert(FORMED_ANNOTATION.to_owned(), formed.to_string());
            }
        });
        Answer::Done
    }
}
