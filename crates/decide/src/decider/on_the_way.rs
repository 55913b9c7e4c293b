//! Pods on their way to a proposed node: their expected devices and room count as taken.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use tessera_cluster::subject::Wanted;
use tessera_cluster::{Key, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::fit::{self, Takes};

use super::Decider;
use super::pod::reference;
use crate::ledger::Proposal;

impl Decider {
    /// Ends a proposal, whether carried out or abandoned.
    pub(super) fn end_proposal(&mut self, key: &Key) {
        if let Some(proposal) = self.ledger.pods.end_proposal(key) {
            self.cluster.forget(key);
            self.fleet.mark(&proposal.node);
        }
    }

    /// Adopts pods already on their way, released by another replica or before a restart.
    pub(super) fn adopt(&mut self) {
        // Pods without a fit stay listed: an obstacle may have disappeared unobserved.
        let adopted: Vec<Key> = self.adopted.iter().cloned().collect();
        for key in adopted {
            let Some(pod) = self.cluster.objects().pods.get(&key).cloned() else { continue };
            let Some(node) = pod.nominated_node().map(str::to_owned) else {
                continue;
            };
            let Ok(demand) = Demand::of(self.cluster.objects(), &pod) else { continue };
            if demand.is_open()
                && demand.obstacle().is_none()
                && self.unanswered(&demand).is_none()
                && let Some(fit) = self.fit_by_scheduler(&demand, &node)
            {
                self.send(&key, &pod, &demand, &node, fit);
                self.adopted.remove(&key);
            }
        }
    }

    /// Reassigns assumed devices of pods on their way if another claim got them: kube-scheduler takes pods in its own order.
    pub(super) fn assume_anew(&mut self) {
        let mut nodes = std::mem::take(&mut self.reallocated);
        if self.fleet.now() != self.planned {
            nodes.append(&mut self.crowded);
        }
        let mut open = Vec::new();
        for (key, node) in self.ledger.pods.open_on(&nodes) {
            let Some(pod) = self.cluster.objects().pods.get(&key) else { continue };
            let Ok(demand) = Demand::of(self.cluster.objects(), pod) else { continue };
            // Otherwise the pod keeps its assumed devices until its selectors are evaluated.
            if demand.obstacle().is_none()
                && self.cluster.answer_ahead(demand.claims(), &mut 0, &mut self.asker).is_ok()
            {
                open.push((key, node, demand));
            }
        }
        open.iter().for_each(|(key, ..)| self.cluster.forget_claims(key));
        for (key, node, demand) in open {
            let Some(object) = self.cluster.objects().node(&node) else { continue };
            let (wanted, claims) = demand.on(object);
            if let Ok(Some(allocations)) = self.cluster.plan(object, &claims, &mut self.asker) {
                let claims = with_devices(&wanted, allocations);
                // Cannot fail: the allocator wrote the quantities.
                let _ = self.cluster.assume_claims(&key, claims);
            } else {
                self.crowded.insert(node.clone());
            }
            self.fleet.mark(&node);
        }
    }

    /// The pod's allocations from the node's managed cards, if it can run there.
    pub(super) fn fit_managed_cards(&mut self, demand: &Demand, node: &str) -> Option<Takes> {
        let index = self.fleet.find(node)?;
        fit::of_managed_cards(demand, index, &mut self.view_of_nodes()).takes()
    }

    /// The allocations kube-scheduler would choose for the pod on the node, if it can run there.
    pub(super) fn fit_by_scheduler(&mut self, demand: &Demand, node: &str) -> Option<Takes> {
        let index = self.fleet.find(node)?;
        fit::by_scheduler(demand, index, &mut self.view_of_nodes()).takes()
    }

    /// Records the pod as on its way to the node.
    pub(super) fn send(&mut self, key: &Key, pod: &Pod, demand: &Demand, node: &str, fit: Takes) {
        let Some(object) = self.cluster.objects().node(node) else {
            return;
        };
        let (wanted, _) = demand.on(object);
        let is_allocated = wanted.is_empty();
        // Claims written by this controller have their own ledger rows.
        let natives = wanted.into_iter().zip(fit.allocations).zip(fit.is_managed);
        let natives = natives.filter(|(_, is_managed)| !is_managed).map(|(both, _)| both);
        let (wanted, allocations): (Vec<&Wanted>, Vec<AllocationResult>) = natives.unzip();
        let claims = with_devices(&wanted, allocations);
        let shared = demand.shared().collect();
        // Cannot fail: the allocator wrote the quantities.
        let _ = self.cluster.assume(key, pod, node, claims);
        let proposal = Proposal { node: node.to_owned(), shared, is_allocated, managed: None };
        self.ledger.pods.propose(&reference(pod), proposal);
        self.fleet.mark(node);
    }
}

/// The claims with these allocations.
pub(super) fn with_devices(wanted: &[&Wanted], allocations: Vec<AllocationResult>) -> Vec<ResourceClaim> {
    let claims = wanted.iter().zip(allocations).map(|(wanted, allocation)| ResourceClaim {
        status: Some(ResourceClaimStatus { allocation: Some(allocation), ..Default::default() }),
        ..wanted.claim.clone()
    });
    claims.collect()
}
