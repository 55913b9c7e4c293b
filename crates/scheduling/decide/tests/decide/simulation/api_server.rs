//! A simulated API server: versioned objects, watches and writes.

mod watches;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use tessera_cluster::workloads::DisruptionBudget;
use tessera_cluster::{Key, Kind, Object};

use super::oracle::View;
pub use super::surroundings::Surroundings;
use super::{checks, kubernetes};
pub use watches::Seen;
use watches::{Event, Stream};
pub use writes::{Answer, REFUSES_WRITES, refuses_writes};

/// Kinds served, unless a case adds more.
const KINDS: [Kind; 7] = [
    Kind::DeviceClass,
    Kind::Node,
    Kind::ResourceSlice,
    Kind::ResourceClaimTemplate,
    Kind::ResourceClaim,
    Kind::Pod,
    Kind::DisruptionBudget,
];

/// The API server.
pub struct Server {
    kinds: Vec<Kind>,
    objects: View,
    /// Grows with every change.
    pub version: u64,
    watches: Vec<BTreeMap<Kind, Stream>>,
    /// Number of evictions done.
    pub evictions: usize,
}

impl Default for Server {
    fn default() -> Self {
        Server::with_kinds(&[])
    }
}

impl Server {
    /// Serves these kinds in addition.
    pub fn with_kinds(more: &[Kind]) -> Self {
        let kinds = KINDS.iter().chain(more).copied().collect();
        Server { kinds, objects: View::new(), version: 0, watches: Vec::new(), evictions: 0 }
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// All current objects.
    pub fn view(&self) -> &View {
        &self.objects
    }

    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(&(kind, key.clone()))
    }

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let first = (kind, Key::default());
        self.objects
            .range(first..)
            .take_while(move |((other, _), _)| *other == kind)
            .map(|(_, object)| object)
    }

    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        match self.get(Kind::Pod, key)?.as_ref() {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    pub fn pods(&self) -> impl Iterator<Item = (Key, &Pod)> {
        self.of_kind(Kind::Pod).filter_map(|object| match object.as_ref() {
            Object::Pod(pod) => Some((Key::from(&pod.metadata), pod)),
            _ => None,
        })
    }

    pub fn claim(&self, key: &Key) -> Option<&ResourceClaim> {
        match self.get(Kind::ResourceClaim, key)?.as_ref() {
            Object::ResourceClaim(claim) => Some(claim),
            _ => None,
        }
    }

    pub fn claims(&self) -> impl Iterator<Item = (Key, &ResourceClaim)> {
        self.of_kind(Kind::ResourceClaim).filter_map(|object| match object.as_ref() {
            Object::ResourceClaim(claim) => Some((Key::from(&claim.metadata), claim)),
            _ => None,
        })
    }

    /// The disruption budgets covering the pod.
    pub fn budgets_of(&self, pod: &Pod) -> Vec<DisruptionBudget> {
        let budgets = self.of_kind(Kind::DisruptionBudget).filter_map(|object| match object.as_ref() {
            Object::DisruptionBudget(budget) if kubernetes::is_kept(pod) => Some(budget.clone()),
            _ => None,
        });
        budgets.collect()
    }

    /// A number never returned before.
    pub fn next_uid(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Creates or replaces an object.
    pub fn apply(&mut self, around: &mut Surroundings, object: impl Into<Object>) {
        let mut object = object.into();
        self.version += 1;
        let version = Some(self.version.to_string());
        match &mut object {
            Object::Pod(object) => object.metadata.resource_version = version,
            Object::ResourceClaim(object) => object.metadata.resource_version = version,
            Object::Node(object) => object.metadata.resource_version = version,
            Object::ResourceSlice(object) => {
                object.metadata.resource_version = version;
                self.date_taints(around, object);
            }
            _ => {}
        }
        let (kind, key) = (object.kind(), Key::from(object.metadata()));
        let object = Arc::new(object);
        self.objects.insert((kind, key), Arc::clone(&object));
        self.tell(around, kind, Event::Applied(object));
    }

    /// Sets `timeAdded` on taints, and keeps the time of taints already there.
    fn date_taints(&self, around: &Surroundings, slice: &mut ResourceSlice) {
        let before = match self.get(Kind::ResourceSlice, &Key::from(&slice.metadata)).map(AsRef::as_ref) {
            Some(Object::ResourceSlice(before)) => before.spec.devices.clone().unwrap_or_default(),
            _ => Vec::new(),
        };
        for device in slice.spec.devices.iter_mut().flatten() {
            let known = before.iter().find(|known| known.name == device.name);
            let known = known.and_then(|known| known.taints.as_ref()?.first()?.time_added.clone());
            let now = Timestamp::from_millisecond(i64::try_from(around.now.as_millis()).unwrap()).unwrap();
            for taint in device.taints.iter_mut().flatten() {
                taint.time_added =
                    Some(known.clone().unwrap_or(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)));
            }
        }
    }

    pub fn update_pod(&mut self, around: &mut Surroundings, key: &Key, change: impl FnOnce(&mut Pod)) {
        if let Some(mut pod) = self.pod(key).cloned() {
            change(&mut pod);
            self.apply(around, pod);
        }
    }

    pub fn update_claim(
        &mut self,
        around: &mut Surroundings,
        key: &Key,
        change: impl FnOnce(&mut ResourceClaim),
    ) {
        if let Some(mut claim) = self.claim(key).cloned() {
            change(&mut claim);
            self.apply(around, claim);
            checks::devices::of_claim(around, self, key);
        }
    }

    pub fn delete(&mut self, around: &mut Surroundings, kind: Kind, key: &Key) {
        if self.objects.remove(&(kind, key.clone())).is_some() {
            self.version += 1;
            self.tell(around, kind, Event::Deleted(key.clone()));
        }
    }
}

/// Names of the pod's gates.
pub fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| gate.name.clone()).collect()
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut reasons = conditions.filter_map(|condition| condition.reason.as_deref());
    reasons.any(|reason| matches!(reason, "Unschedulable" | "SchedulerError"))
}
