//! Takes in observed objects.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::DeviceName;
use tessera_api::managed::{REFUSED_NODES_ANNOTATION, RefusedNodes};
use tessera_cluster::gang;
use tessera_cluster::subject::{PodObstacle, Subject, Wanted};
use tessera_cluster::usage::take_the_same;
use tessera_cluster::{ClaimExt, Key, Kind, Object, PodExt};
use tessera_placement::Time;

use super::managed_pods::UNTIL_BOUND;
use super::pod::is_open;
use super::{Decider, ObservationError};
use crate::intent::PodReference;
use crate::refusals;

/// The longest pause after a failed write.
const LONGEST_PAUSE: Time = Time::from_secs(30);

impl Decider {
    pub(super) fn apply(&mut self, now: Time, object: Object) -> Result<(), ObservationError> {
        let key = Key::from(object.metadata());
        let kind = object.kind();
        let mut report = Ok(());
        let mut is_reallocated = false;
        let had_managed = self.fleet.has_managed();
        match &object {
            Object::ResourceSlice(slice) => {
                report = self.fleet.apply_slice(now, slice, &self.driver);
                self.mark_slice(&key.name);
                if slice.spec.node_name.is_none() {
                    self.fleet.mark_all();
                }
            }
            Object::ResourceClaim(claim) => {
                is_reallocated = self.cluster.objects().claims.get(&key).and_then(|claim| claim.allocation())
                    != claim.allocation();
                if is_reallocated {
                    self.mark_claim(&key);
                    self.see_departures(&key);
                }
            }
            Object::Pod(pod) => self.see_pod(now, &key, pod),
            _ => {}
        }
        let job_set = if kind == Kind::Job { gang::job_set_of(object.metadata()) } else { None };
        let is_changed = match self.cluster.apply(object) {
            Ok(is_changed) => is_changed,
            Err(error) => {
                self.cluster.delete(kind, &key);
                self.cluster.mark_unreadable(kind, key, error.to_string());
                self.fleet.mark_all();
                return Err(error.into());
            }
        };
        match kind {
            _ if !is_changed => {}
            Kind::ResourceClaim => {
                if is_reallocated {
                    self.mark_claim(&key);
                }
                // A follower would only accumulate them; a new leader checks all claims.
                if self.term.is_some() {
                    self.unclaimed.insert(key.clone());
                }
                self.settle_allocation(&key);
                self.end_fence_seen(&key);
                self.see_failure(now, &key);
                self.see_claim(now, &key);
                self.see_claim_of_unplaced(&key);
            }
            Kind::ResourceSlice => {
                self.mark_slice(&key.name);
                if !had_managed && self.fleet.has_managed() {
                    self.see_open_pods();
                }
            }
            Kind::Node => self.fleet.mark(&key.name),
            Kind::Pod => {}
            Kind::ResourceClaimTemplate => {
                self.queue.extend(self.waiting.keys().cloned());
                self.see_template_of_unplaced(&key.namespace);
            }
            Kind::Job | Kind::JobSet | Kind::LeaderWorkerSet | Kind::PodGroup => {
                self.see_workload(kind, &key);
                if let Some(job_set) = job_set {
                    self.see_workload(Kind::JobSet, &job_set);
                }
            }
            // The search for victims is repeated periodically anyway.
            Kind::DisruptionBudget => {}
            Kind::DeviceClass | Kind::DeviceTaintRule => {
                self.rankings.clear();
                self.fleet.mark_all();
                self.see_class_of_unplaced();
            }
            Kind::PersistentVolume | Kind::PersistentVolumeClaim => {
                if self.is_volume_of_waiting(kind, &key) {
                    self.fleet.mark_all();
                }
            }
        }
        report.map_err(|error| ObservationError::Report { slice: key.name, error: error.to_string() })
    }

    /// An unreadable object counts as deleted, except for the devices held by a claim.
    pub(super) fn see_unreadable(
        &mut self,
        now: Time,
        kind: Kind,
        key: &Key,
        why: String,
        holds: Option<Box<ResourceClaim>>,
    ) -> Result<(), ObservationError> {
        let seen = match holds {
            Some(claim) => self.apply(now, Object::from(*claim)),
            None => {
                self.delete(now, kind, key);
                Ok(())
            }
        };
        self.cluster.mark_unreadable(kind, key.clone(), why);
        let of_namespace = self.waiting.keys().filter(|pod| pod.namespace == key.namespace);
        self.queue.extend(of_namespace.cloned());
        seen
    }

    /// With the first managed cards, pods without gates become this controller's business too.
    fn see_open_pods(&mut self) {
        for (key, pod) in &self.cluster.objects().pods {
            if is_open(pod) && self.ledger.pods.proposal(key).is_none() {
                self.waiting.entry(key.clone()).or_default();
                self.queue.insert(key.clone());
            }
        }
    }

    pub(super) fn delete(&mut self, now: Time, kind: Kind, key: &Key) {
        match kind {
            Kind::ResourceSlice => {
                let node = self.node_of_slice(&key.name);
                self.cluster.delete(kind, key);
                match node {
                    None => self.fleet.mark_all(),
                    Some(node) => {
                        self.fleet.delete_slice(&key.name, &node);
                        self.fleet.mark_devices(&node);
                    }
                }
                return;
            }
            Kind::ResourceClaim => {
                self.mark_claim(key);
                self.see_departures(key);
                self.ledger.claims.end_clear(key);
                self.see_claim_of_unplaced(key);
                self.cluster.delete(kind, key);
                self.settle_allocation(key);
                self.see_failure(now, key);
                let on_their_way: Vec<Key> = self.ledger.pods.proposed_in(&key.namespace).cloned().collect();
                on_their_way.iter().for_each(|pod| self.see_claim_of(now, pod));
                return;
            }
            Kind::Pod => {
                if let Some(node) = self.node_of_pod(key) {
                    self.fleet.mark(&node);
                }
                self.see_departure(key);
                self.forget_nominated(key);
                self.end_proposal(key);
                self.forget_waiting(key);
                self.queue.remove(key);
                self.adopted.remove(key);
                self.gangs.set(key, None);
                self.forget_unplaced(key);
                if let Some(pod) = self.cluster.objects().pods.get(key).cloned() {
                    self.workload_pods.replace(key, Some(&pod), None);
                    self.see_end(&pod);
                }
            }
            Kind::Node => self.fleet.mark(&key.name),
            Kind::DeviceClass | Kind::DeviceTaintRule => {
                self.rankings.clear();
                self.fleet.mark_all();
                self.see_class_of_unplaced();
            }
            Kind::ResourceClaimTemplate
            | Kind::PersistentVolume
            | Kind::PersistentVolumeClaim
            | Kind::Job
            | Kind::JobSet
            | Kind::LeaderWorkerSet
            | Kind::PodGroup
            | Kind::DisruptionBudget => {}
        }
        self.cluster.delete(kind, key);
    }

    /// A workload object changed: its pods may now belong to other gangs, or to none.
    fn see_workload(&mut self, kind: Kind, key: &Key) {
        for pod in self.workload_pods.of(kind, key) {
            let Some(found) = self.cluster.objects().pods.get(pod) else { continue };
            let gang = gang::of_pod(self.cluster.objects(), found).ok().flatten();
            self.gangs.set(pod, gang.map(|member| member.gang));
            if self.waiting.contains_key(pod) {
                self.queue.insert(pod.clone());
            }
        }
    }

    fn node_of_pod(&self, key: &Key) -> Option<String> {
        self.cluster.objects().pods.get(key)?.node_name().map(str::to_owned)
    }

    /// The node of a slice in the inventory.
    fn node_of_slice(&self, slice: &str) -> Option<String> {
        self.cluster.inventory().node_of_slice(slice).map(str::to_owned)
    }

    fn mark_slice(&mut self, slice: &str) {
        if let Some(node) = self.node_of_slice(slice) {
            self.fleet.mark_devices(&node);
        }
    }

    /// Marks the nodes of the claim's devices.
    pub(super) fn mark_claim(&mut self, key: &Key) {
        let Some(claim) = self.cluster.objects().claims.get(key) else { return };
        let mut nodes = BTreeSet::new();
        for result in claim.results() {
            for device in self.cluster.inventory().find(&result.driver, &result.pool, &result.device) {
                nodes.extend(device.node_name().map(str::to_owned));
            }
        }
        for node in nodes {
            self.fleet.mark(&node);
            self.to_check.insert(node.clone());
            self.reallocated.insert(node);
        }
    }

    /// Records the release of the claim's partitions, if any.
    fn see_departures(&mut self, key: &Key) {
        let Some(held) = self.cluster.objects().claims.get(key) else {
            return;
        };
        let names = held.results().iter().map(|result| result.device.parse::<DeviceName>());
        let partitions = names.filter(|name| matches!(name, Ok(DeviceName::Partition(_)))).count();
        (0..partitions).for_each(|_| self.mix.departed());
    }

    /// A claim changed: re-examines pods using it, one of which may have completed its allocation.
    pub(super) fn see_claim(&mut self, now: Time, claim: &Key) {
        let owner = self.cluster.objects().claims.get(claim);
        let owner = owner.and_then(|claim| claim.owning_pod()).map(str::to_owned);
        match owner {
            Some(pod) => self.see_claim_of(now, &claim.with_name(pod)),
            None => {
                let on_their_way = self.ledger.pods.proposed_in(&claim.namespace);
                let pods: Vec<Key> = self
                    .waiting
                    .keys()
                    .filter(|pod| pod.namespace == claim.namespace)
                    .chain(on_their_way)
                    .cloned()
                    .collect();
                pods.iter().for_each(|pod| self.see_claim_of(now, pod));
            }
        }
    }

    fn see_claim_of(&mut self, now: Time, pod: &Key) {
        self.see_claims_of_arrival(pod);
        if self.waiting.contains_key(pod) {
            self.queue.insert(pod.clone());
        }
        let Some(proposal) = self.ledger.pods.proposal(pod) else { return };
        let (node, was_allocated, is_managed) =
            (proposal.node.clone(), proposal.is_allocated, proposal.managed.is_some());
        let Some(object) = self.cluster.objects().pods.get(pod).cloned() else { return };
        let subject = tessera_cluster::subject::of_pod(self.cluster.objects(), &object);
        let is_allocated = has_its_devices(&subject);
        if was_allocated && is_managed && !is_allocated && object.node_name().is_none() {
            // kube-scheduler deallocated them: the node does not suit it.
            self.refused(now, pod, &object);
        }
        if !was_allocated && is_managed && !is_allocated {
            self.see_partly_taken(pod, &object);
        }
        if was_allocated || !is_allocated {
            return;
        }
        if object.node_name().is_some() {
            self.end_proposal(pod);
        } else {
            self.cluster.forget_claims(pod);
            self.fleet.mark(&node);
            if let Some(proposal) = self.ledger.pods.proposal_mut(pod) {
                proposal.is_allocated = true;
                if let Some(managed) = &mut proposal.managed {
                    managed.due = now + UNTIL_BOUND;
                }
            }
        }
    }

    fn see_pod(&mut self, now: Time, key: &Key, pod: &Pod) {
        let before = self.cluster.objects().pods.get(key).map(AsRef::as_ref);
        self.workload_pods.replace(key, before, Some(pod));
        let same_uid = before.is_some_and(|before| before.metadata.uid == pod.metadata.uid);
        // A resized pod takes a different amount of its node.
        let takes_the_same = |before: &Pod| {
            let stays = before.node_name() == pod.node_name() && before.phase() == pod.phase();
            stays && (pod.node_name().is_none() || take_the_same(before, pod))
        };
        let is_as_before = same_uid && before.is_some_and(takes_the_same);
        if !is_as_before {
            let nodes: Vec<String> = before
                .and_then(PodExt::node_name)
                .into_iter()
                .chain(pod.node_name())
                .map(str::to_owned)
                .collect();
            nodes.iter().for_each(|node| self.fleet.mark(node));
        }
        if !same_uid {
            // The earlier pod of this name is gone.
            if let Some(before) = before.cloned() {
                self.see_end(&before);
            }
            self.forget_nominated(key);
            self.end_proposal(key);
            self.forget_waiting(key);
        }
        self.adopted.remove(key);
        let gang = gang::of_pod(self.cluster.objects(), pod).ok().flatten();
        self.gangs.set(key, gang.map(|member| member.gang));
        self.see_arrival(key, pod);
        self.see_unplaced(key, pod);
        if let Some(noted) =
            pod.metadata.annotations.as_ref().and_then(|all| all.get(REFUSED_NODES_ANNOTATION))
        {
            self.refusals.learn(&refusals::owner(pod), &RefusedNodes::decode(noted), now);
        }
        self.see_evictions(key, pod);
        if pod.is_gated() && pod.metadata.deletion_timestamp.is_none() {
            self.waiting.entry(key.clone()).or_default();
            self.queue.insert(key.clone());
            return;
        }
        if self.fleet.has_managed() && is_open(pod) {
            self.waiting.entry(key.clone()).or_default();
            self.ledger.pods.end_release(key);
            self.queue.insert(key.clone());
        } else {
            self.forget_waiting(key);
            self.forget_nominated(key);
            self.queue.remove(key);
        }
        if pod.has_ended() {
            self.see_end(pod);
        }
        let Some(proposal) = self.ledger.pods.proposal(key) else {
            if !pod.has_ended()
                && pod.node_name().is_none()
                && pod.nominated_node().is_some()
                && !pod.is_unschedulable()
            {
                self.adopted.insert(key.clone());
            }
            return;
        };
        let is_elsewhere = pod.node_name().is_some_and(|node| node != proposal.node);
        // For a managed pod, refusal is inferred from deallocated devices, or else from the deadline.
        let is_refused = pod.node_name().is_none() && pod.is_unschedulable() && proposal.managed.is_none();
        if is_elsewhere || is_refused {
            self.refusals.add(refusals::owner(pod), &proposal.node, now);
        }
        if pod.has_ended() || is_elsewhere || is_refused {
            self.end_proposal(key);
        } else if pod.node_name().is_some() {
            // Its claims come by another watch, perhaps later. Until then their devices are not free.
            let subject = tessera_cluster::subject::of_pod(self.cluster.objects(), pod);
            if proposal.is_allocated || has_its_devices(&subject) {
                self.end_proposal(key);
            } else {
                self.cluster.forget_room(key);
            }
        } else {
            self.hear_verdict(now, key, pod);
        }
    }

    /// The pod no longer waits for this controller.
    fn forget_waiting(&mut self, key: &Key) {
        self.ledger.pods.end_release(key);
        if self.waiting.remove(key).is_some() {
            self.see_place_left();
        }
    }

    pub(super) fn carried(&mut self, now: Time, pod: &PodReference, is_done: bool) {
        // The write may already have been observed, and even its reversal.
        let claims = self.ledger.claims.of_pod(pod);
        claims.iter().for_each(|claim| self.settle_allocation(claim));
        if is_done {
            self.see_claim_of(now, &pod.key);
        }
        let found = self.cluster.objects().pods.get(&pod.key);
        let is_same = found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&pod.uid));
        // A pod observed without its gate is on its way, even if the answer to the write was lost.
        if is_done || !is_same || !self.waiting.contains_key(&pod.key) {
            return;
        }
        self.end_proposal(&pod.key);
        self.ledger.pods.end_release(&pod.key);
        if let Some(waiting) = self.waiting.get_mut(&pod.key) {
            waiting.failures += 1;
            let pause = Time::from_secs(1 << waiting.failures.min(5).saturating_sub(1));
            waiting.not_before = now + pause.min(LONGEST_PAUSE);
            self.queue.insert(pod.key.clone());
        }
    }
}

/// Whether all claims of the pod are observed as allocated.
pub(super) fn has_its_devices(subject: &Subject) -> bool {
    let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
    subject.obstacles.iter().all(is_gate) && subject.claims.iter().all(Wanted::is_allocated)
}
