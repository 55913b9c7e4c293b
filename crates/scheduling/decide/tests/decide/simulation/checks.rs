//! Invariants: at every write, at every intent, and at the end.

pub mod devices;
mod end;
pub mod gangs;
pub mod idle;
pub mod on_the_way;
mod queue;
mod reasons;
pub mod teams;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::gpu_pool::Allocation;
use tessera_api::steering::GATE;
use tessera_api::{NodeReport, node_report};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::{Intent, PodReference, Time};

use super::api_server::{Server, Surroundings, gates, has_ended, is_refused, node_name};
use super::oracle;
use super::replica::Replica;
use super::users::cards_asked;
use crate::objects::DRIVER;

pub use end::end;

/// Longest delay until a replica observes a change.
const LATEST: Time = Time::from_secs(25);

impl Replica {
    fn pod(&self, key: &Key) -> Option<&Pod> {
        oracle::pod(&self.view, key)
    }

    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        oracle::pods(&self.view)
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        oracle::of_kind(&self.view, kind)
    }

    /// The pod's first claim in the replica's view.
    fn claim(&self, pod: &Pod) -> Option<&ResourceClaim> {
        let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        let name = statuses.first()?.resource_claim_name.clone()?;
        self.claim_of(&Key::new(pod.metadata.namespace.clone()?, name))
    }

    /// The claim in the replica's view.
    fn claim_of(&self, key: &Key) -> Option<&ResourceClaim> {
        match self.view.get(&(Kind::ResourceClaim, key.clone()))?.as_ref() {
            Object::ResourceClaim(claim) => Some(claim),
            _ => None,
        }
    }

    /// Whether all of the pod's claims have devices in the replica's view.
    pub fn has_all_devices(&self, pod: &Pod) -> bool {
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut names =
            statuses.into_iter().flatten().filter_map(|status| status.resource_claim_name.clone());
        statuses.is_some()
            && names.all(|name| {
                let claim = self.view.get(&(Kind::ResourceClaim, Key::new(namespace.clone(), name)));
                matches!(claim.map(AsRef::as_ref), Some(Object::ResourceClaim(claim))
                    if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()))
            })
    }

    fn has_devices(&self, pod: &Pod) -> bool {
        let claim = self.claim(pod);
        claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.allocation.is_some()))
    }

    /// Whether the node reports a card whose allocation is not Native.
    fn is_steered(&self, node: &str) -> bool {
        self.of_kind(Kind::ResourceSlice).any(|object| {
            let Object::ResourceSlice(slice) = object else { return false };
            let text = slice.metadata.annotations.as_ref().and_then(|all| all.get(node_report::ANNOTATION));
            let report = text.and_then(|text| serde_json::from_str::<NodeReport>(text).ok());
            slice.spec.node_name.as_deref() == Some(node)
                && report.is_some_and(|report| {
                    report.cards.values().any(|card| card.allocation != Allocation::Native)
                })
        })
    }

    /// Whole cards of the node, and the number taken by claims and by pods on their way. `None` where parts of cards are in use,
    /// since the number then depends on the parts.
    fn cards_of(&self, node: &str) -> Option<(usize, usize)> {
        let mut cards = 0;
        for object in self.of_kind(Kind::ResourceSlice) {
            let Object::ResourceSlice(slice) = object else { continue };
            if slice.spec.node_name.as_deref() == Some(node) {
                let devices = slice.spec.devices.iter().flatten();
                cards += devices.filter(|device| !device.name.contains("mig")).count();
            }
        }
        let mut taken = 0;
        for object in self.of_kind(Kind::ResourceClaim) {
            let Object::ResourceClaim(claim) = object else { continue };
            for (pool, device) in oracle::devices_of(claim) {
                if pool == format!("{DRIVER}/{node}") {
                    if device.contains("mig") {
                        return None;
                    }
                    taken += 1;
                }
            }
        }
        for object in self.of_kind(Kind::Pod) {
            let Object::Pod(pod) = object else { continue };
            let is_gone = has_ended(pod) || pod.metadata.deletion_timestamp.is_some();
            // The first of several pods sharing a claim takes its card.
            if self.sent.contains_key(&reference(pod)) && names_a_claim(pod) {
                return None;
            }
            let claim = self.claim(pod).map(|claim| Key::from(&claim.metadata));
            if is_gone || claim.is_none_or(|claim| self.allocated.contains(&claim)) {
                continue;
            }
            let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
            let is_sent =
                gates(pod).is_empty() && node_name(pod).is_none() && nominated.is_some() && !is_refused(pod);
            let target = match self.sent.get(&reference(pod)) {
                Some(target) => Some(target.as_str()),
                None => nominated.filter(|_| is_sent),
            };
            if target == Some(node) {
                taken += cards_asked(pod)?;
            }
        }
        Some((cards, taken))
    }
}

fn names_a_claim(pod: &Pod) -> bool {
    let mut asked = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    asked.any(|asked| asked.resource_claim_name.is_some())
}

fn reference(pod: &Pod) -> PodReference {
    PodReference { key: Key::from(&pod.metadata), uid: pod.metadata.uid.clone().unwrap_or_default() }
}

/// Pods observed to have arrived, or to go elsewhere, are no longer on their way.
pub fn forget_arrived(replica: &mut Replica) {
    let arrived = |(reference, node): (&PodReference, &String)| {
        let pod = replica.pod(&reference.key);
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(&reference.uid)) else {
            return Some(reference.clone());
        };
        let is_there = node_name(pod) == Some(node) && replica.has_devices(pod);
        let is_elsewhere = node_name(pod).is_some_and(|bound| bound != node);
        let is_gone = has_ended(pod) || pod.metadata.deletion_timestamp.is_some();
        let is_refused = gates(pod).is_empty() && is_refused(pod);
        (is_there || is_elsewhere || is_gone || is_refused).then(|| reference.clone())
    };
    let arrived: Vec<PodReference> = replica.sent.iter().filter_map(arrived).collect();
    arrived.iter().for_each(|reference| drop(replica.sent.remove(reference)));
}

/// Handles a failed intent: the pod is not on its way unless its gate was observed to be gone.
pub fn failed(replica: &mut Replica, pod: &PodReference) {
    if replica.pod(&pod.key).is_none_or(|pod| !gates(pod).is_empty()) {
        replica.sent.remove(pod);
    }
}

/// Checks the intent against the replica's view.
pub fn intent(around: &mut Surroundings, replica: &Replica, server: &Server, intent: &Intent) {
    let Some(about) = intent.pod() else { return };
    if let Intent::Nominate { nomination: Some(nomination), .. } = intent {
        queue::may_nominate(around, replica, nomination);
    }
    if matches!(intent, Intent::Note { .. } | Intent::Nominate { .. } | Intent::Clear { .. }) {
        return;
    }
    let pod = replica.pod(&about.key).filter(|pod| pod.metadata.uid.as_ref() == Some(&about.uid));
    let Some(pod) = pod else {
        return around.violated(|| format!("{intent:?} for a pod that was seen to be gone"));
    };
    let is_open = matches!(
        intent,
        Intent::Allocate { lifts_gate: false, .. } | Intent::Tell { .. } | Intent::Evict { .. }
    );
    if gates(pod) != [GATE] && !(is_open && gates(pod).is_empty()) {
        around.violated(|| format!("{intent:?}, but its gates are {:?}", gates(pod)));
    }
    match intent {
        Intent::Steer { node, .. } => {
            steer(around, replica, pod, node);
            teams::may_steer(around, replica, server, pod, node);
        }
        Intent::Release { why, .. } => release(around, replica, pod, why),
        Intent::Evict { why, .. } => {
            gangs::may_evict(around, replica, pod, why);
            idle::may_evict(around, replica, pod, why);
            teams::may_evict(around, replica, server, pod, why);
        }
        // Whether the devices are free is checked at the write.
        Intent::Allocate { claims, node, .. } if !claims.is_empty() => {
            queue::may_allocate(around, replica, pod, node);
            idle::may_allocate(around, replica, pod);
            teams::may_allocate(around, replica, server, pod, claims);
        }
        Intent::Allocate { lifts_gate: true, .. } => gangs::may_lift(around, replica, pod),
        _ => {}
    }
}

fn steer(around: &mut Surroundings, replica: &Replica, pod: &Pod, node: &str) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    match replica.view.get(&(Kind::Node, Key::cluster(node.to_owned()))).map(AsRef::as_ref) {
        Some(Object::Node(found)) => {
            if found.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
                around.violated(|| format!("{name} is sent to {node}, which is cordoned"));
            }
        }
        _ => around.violated(|| format!("{name} is sent to {node}, which does not exist")),
    }
    if !replica.is_steered(node) {
        around.violated(|| format!("{name} is sent to {node}, which is not steered"));
    }
    let Some(asked) = cards_asked(pod).filter(|asked| *asked > 0) else { return };
    let Some((cards, taken)) = replica.cards_of(node) else { return };
    // On an overcommitted node some pods cannot arrive, and nobody knows which ones.
    if taken <= cards && taken + asked > cards {
        around.violated(|| {
            format!("{name} is sent to {node} for {asked} cards, of which {taken} of {cards} are taken")
        });
    }
}

fn release(around: &mut Surroundings, replica: &Replica, pod: &Pod, why: &str) {
    let asks = cards_asked(pod) != Some(0) && !replica.has_devices(pod);
    let known = around.only_steered_since.is_some_and(|since| around.now > since + LATEST);
    if asks && known {
        let name = pod.metadata.name.clone().unwrap_or_default();
        around.violated(|| format!("{name} is left to kube-scheduler, though all nodes are steered: {why}"));
    }
}
