//! Pods with devices of managed cards.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus};
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::subject::Wanted;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fit::Takes;

use super::Decider;
use super::claim::reference_of;
use super::pod::reference;
use crate::intent::{ClaimAllocation, ClaimReference, Intent};
use crate::ledger::{Allocation, ManagedProposal, Progress, Proposal};
use crate::refusals;
use crate::wait_reason::WaitReason;

/// Grace for a verdict of kube-scheduler on a pod with devices: it may not have observed the allocation yet.
const MAY_BE_LATE: Time = Time::from_secs(5);

/// How long a pod with devices may wait under an earlier verdict of kube-scheduler.
pub(super) const UNTIL_BOUND: Time = Time::from_secs(30);

impl Decider {
    /// Allocates managed cards on the node to the pod's claims.
    pub(super) fn allocate(
        &mut self,
        now: Time,
        key: &Key,
        pod: &Pod,
        demand: &Demand,
        chosen: (&str, usize),
    ) -> Option<Intent> {
        let (node, suitable) = chosen;
        if demand.subject.claims.iter().any(|wanted| wanted.made_from.is_some()) {
            let why = WaitReason::Passing("its ResourceClaims do not exist yet".to_owned());
            return self.waits(now, key, pod, why);
        }
        let fit = self.fit_managed_cards(demand, node)?;
        let why = format!("of {suitable} suitable nodes, {node} loses least by it");
        self.allocate_fit(now, (key, pod), demand, (node, fit), why, pod.is_gated())
    }

    /// Allocates these devices of the node to the pod's claims. With `lifts_gate`, also removes the pod's gate afterwards.
    pub(super) fn allocate_fit(
        &mut self,
        now: Time,
        (key, pod): (&Key, &Pod),
        demand: &Demand,
        (node, fit): (&str, Takes),
        why: String,
        lifts_gate: bool,
    ) -> Option<Intent> {
        let term = self.term.as_ref().filter(|_| self.may_allocate())?;
        let epoch = term.epoch.clone();
        let object = self.cluster.objects().node(node)?;
        let (wanted, _) = demand.on(object);
        let ours =
            wanted.iter().zip(&fit.allocations).zip(&fit.is_managed).filter(|(_, is_managed)| **is_managed);
        let claims = ours.map(|((wanted, allocation), _)| ClaimAllocation {
            claim: reference_of(&wanted.claim),
            allocation: allocation.clone(),
        });
        let claims: Vec<ClaimAllocation> = claims.collect();
        let may_allocate = self.ledger.claims.may_allocate(claims.iter().map(|claim| &claim.claim.key));
        debug_assert_eq!(may_allocate, Ok(()), "{key}");
        if let Err(error) = may_allocate {
            return self.waits(now, key, pod, WaitReason::Unfit(error.to_string()));
        }
        self.send(key, pod, demand, node, fit);
        self.note_allocations(pod, node, &claims, &epoch);
        let keys = claims.iter().map(|claim| claim.claim.key.clone()).collect();
        let managed = ManagedProposal { verdict_before: pod.verdict(), due: now + UNTIL_BOUND, claims: keys };
        if let Some(proposal) = self.ledger.pods.proposal_mut(key) {
            proposal.managed = Some(managed);
        }
        let (pod, node) = (reference(pod), node.to_owned());
        Some(Intent::Allocate { pod, node, claims, epoch, lifts_gate, why })
    }

    /// Counts the devices as taken, regardless of the pod's outcome.
    fn note_allocations(&mut self, pod: &Pod, node: &str, claims: &[ClaimAllocation], epoch: &str) {
        for ClaimAllocation { claim, allocation } in claims {
            let Some(known) = self.cluster.objects().claims.get(&claim.key) else { continue };
            let status = ResourceClaimStatus { allocation: Some(allocation.clone()), ..Default::default() };
            let allocated = ResourceClaim { status: Some(status), ..known.as_ref().clone() };
            // Cannot fail: the allocator wrote the quantities.
            let _ = self.cluster.assume_claim(&allocated);
            let written = Allocation {
                uid: claim.uid.clone(),
                pod: reference(pod),
                node: node.to_owned(),
                version: claim.resource_version.parse().ok(),
                epoch: epoch.to_owned(),
                progress: Progress::Sent,
                is_fencing: false,
            };
            self.ledger.claims.allocate(claim.key.clone(), written);
        }
    }

    /// Ends the assumed allocation: either observed, or no longer possible.
    pub(super) fn end_allocation(&mut self, claim: &Key) {
        if let Some(allocation) = self.ledger.claims.end_allocation(claim) {
            self.cluster.forget_claim(claim);
            self.fleet.mark(&allocation.node);
        }
    }

    /// Ends the claim's assumed allocation once the observed state or deletion of the claim settles its outcome.
    pub(super) fn settle_allocation(&mut self, key: &Key) {
        let Some(allocation) = self.ledger.claims.allocation(key) else { return };
        let claim = self.cluster.objects().claims.get(key);
        let is_known = claim.is_none_or(|claim| {
            let version = claim.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
            let is_later = match &allocation.progress {
                Progress::Acknowledged(written) => version > written.parse::<u128>().ok(),
                Progress::Sent | Progress::Uncertain => false,
            };
            let epoch = claim.metadata.annotations.as_ref().and_then(|all| all.get(EPOCH_ANNOTATION));
            claim.metadata.uid.as_deref() != Some(&allocation.uid)
                || claim.has_devices()
                || is_later
                || allocation.is_fenced_off(version, epoch)
        });
        if is_known {
            self.end_allocation(key);
        }
    }

    /// Next step for a pod with all its devices, some allocated by us, without a proposal in this process.
    pub(super) fn go_on(&mut self, now: Time, key: &Key, pod: &Pod, demand: &Demand) -> Option<Intent> {
        let ours: Vec<&Wanted> =
            demand.subject.claims.iter().filter(|wanted| self.is_unused(&wanted.claim)).collect();
        let node = ours.iter().find_map(|wanted| wanted.claim.allocated_node().map(str::to_owned))?;
        if let Some(why) = self.unknown_scheduler(pod) {
            return self.take_back(key, pod, demand, &why);
        }
        if self.refusals.contains(&refusals::owner(pod), &node, now) {
            return self.take_back(key, pod, demand, &format!("kube-scheduler finds no room on {node}"));
        }
        let managed = ManagedProposal { verdict_before: None, due: now + UNTIL_BOUND, claims: Vec::new() };
        // Cannot fail: no claims are passed.
        let _ = self.cluster.assume(key, pod, &node, Vec::new());
        self.fleet.mark(&node);
        let proposal = Proposal { node, shared: Vec::new(), is_allocated: true, managed: Some(managed) };
        self.ledger.pods.propose(&reference(pod), proposal);
        None
    }

    /// Takes back our unreserved devices from the pod, except claims in use by another pod on its way.
    pub(super) fn take_back(&mut self, key: &Key, pod: &Pod, demand: &Demand, why: &str) -> Option<Intent> {
        self.term.as_ref()?;
        let ours = demand.subject.claims.iter().map(|wanted| &wanted.claim);
        let ours = ours.filter(|claim| self.is_unused(claim) && self.refusal_of(claim).is_none());
        let claims: Vec<ClaimReference> = ours.map(reference_of).collect();
        let claims: Vec<ClaimReference> = claims
            .into_iter()
            .filter(|claim| !self.is_used_on_the_way(&claim.key, key) && self.ledger.claims.clear(&claim.key))
            .collect();
        if claims.is_empty() {
            return None;
        }
        self.note_why(key, WaitReason::Passing(why.to_owned()));
        Some(Intent::Clear { pod: Some(reference(pod)), claims, why: why.to_owned() })
    }

    /// Whether a pod other than `but` is on its way with the claim.
    fn is_used_on_the_way(&self, claim: &Key, but: &Key) -> bool {
        let mut others = self.ledger.pods.proposed_in(&claim.namespace).filter(|pod| *pod != but);
        others.any(|pod| self.cluster.objects().pods.get(pod).is_some_and(|pod| pod.names_claim(&claim.name)))
    }

    /// Whether an allocation or deallocation of the pod's claims is in flight.
    pub(super) fn is_being_written(&self, demand: &Demand) -> bool {
        let mut claims = demand.subject.claims.iter().map(|wanted| Key::from(&wanted.claim.metadata));
        claims.any(|claim| self.ledger.claims.changes_devices(&claim))
    }

    /// Shortens the deadline of a pod with our devices once kube-scheduler newly reports no node for it.
    pub(super) fn hear_verdict(&mut self, now: Time, key: &Key, pod: &Pod) {
        let Some(managed) = self.ledger.pods.proposal_mut(key).and_then(|proposal| proposal.managed.as_mut())
        else {
            return;
        };
        if pod.is_refused() && pod.verdict() != managed.verdict_before {
            managed.due = managed.due.min(now + MAY_BE_LATE);
        }
    }

    /// Gives up nodes whose pods with devices were not bound in time.
    pub(super) fn give_up_overdue(&mut self, now: Time) {
        for key in self.ledger.pods.overdue(now) {
            let Some(pod) = self.cluster.objects().pods.get(&key).cloned() else { continue };
            if pod.is_refused() && pod.node_name().is_none() && !pod.is_gated() {
                self.refused(now, &key, &pod);
            } else if let Some(managed) =
                self.ledger.pods.proposal_mut(&key).and_then(|proposal| proposal.managed.as_mut())
            {
                // kube-scheduler has not tried the pod yet.
                managed.due = now + UNTIL_BOUND;
            }
        }
    }

    /// Ends the proposal if all writes were answered and some allocations are gone: kube-scheduler tried the pod while only part of its
    /// claims had devices, and deallocated them. The node is not to blame, and nobody else allocates them again.
    pub(super) fn see_partly_taken(&mut self, key: &Key, pod: &Pod) {
        let managed = self.ledger.pods.proposal(key).and_then(|proposal| proposal.managed.as_ref());
        let Some(managed) = managed.filter(|_| !self.ledger.pods.is_writing(&reference(pod))) else { return };
        let mut open = managed.claims.iter().filter(|claim| {
            let claim = self.cluster.objects().claims.get(*claim);
            claim.is_some_and(|claim| !claim.has_devices())
        });
        let is_open = open.next().is_some();
        if is_open && managed.claims.iter().all(|claim| self.ledger.claims.allocation(claim).is_none()) {
            self.end_proposal(key);
            self.queue.insert(key.clone());
        }
    }

    /// kube-scheduler refused the node of a pod with our devices.
    pub(super) fn refused(&mut self, now: Time, key: &Key, pod: &Pod) {
        let Some(node) = self.ledger.pods.proposal(key).map(|proposal| proposal.node.clone()) else { return };
        self.refusals.add(refusals::owner(pod), &node, now);
        self.end_proposal(key);
        self.to_note.insert(key.clone());
        self.queue.insert(key.clone());
    }

    /// Intents to persist refused nodes and evictions for the next leader, on the pods.
    pub(super) fn note(&mut self) -> Vec<Intent> {
        let keys = std::mem::take(&mut self.to_note);
        let pods = keys.iter().filter_map(|key| self.cluster.objects().pods.get(key));
        let notes = pods.map(|pod| {
            let owner = refusals::owner(pod);
            let (nodes, evictions) = (self.refusals.to_note(&owner), self.evictions_of(pod));
            Intent::Note { pod: reference(pod), nodes, evictions }
        });
        notes.collect()
    }
}
