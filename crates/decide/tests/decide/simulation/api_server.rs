//! A simulated API server: objects with versions, and watches that bring them late, twice, or not at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::{EPOCH_ANNOTATION, REFUSED_NODES_ANNOTATION, RefusedNodes};
use tessera_api::steering::GATE;
use tessera_cluster::{Key, Kind, Object, key, outcome};
use tessera_decide::{ClaimReference, PodReference, Time};

use super::bug::Bug;

/// The kinds that exist here.
pub const KINDS: [Kind; 6] = [
    Kind::DeviceClass,
    Kind::Node,
    Kind::ResourceSlice,
    Kind::ResourceClaimTemplate,
    Kind::ResourceClaim,
    Kind::Pod,
];

/// What all parts share: the clock, chance, and what went wrong first.
pub struct Surroundings {
    pub now: Time,
    pub rng: fastrand::Rng,
    /// Whether anything may fail, be late or get lost.
    pub is_faulty: bool,
    pub bug: Option<Bug>,
    pub violation: Option<String>,
    /// Since when all nodes with devices, and at least one, are in steered pools.
    pub only_steered_since: Option<Time>,
    pub log: Option<Vec<String>>,
}

impl Surroundings {
    pub fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {:.1} s: {}", self.now.as_secs_f32(), what()));
        }
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.as_secs_f32();
        if let Some(log) = &mut self.log {
            log.push(format!("{now:7.1} {}", what()));
        }
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.rng.u32(0..100) < chance
    }

    /// As [`Self::percent`], but never once faults have stopped.
    pub fn fault(&mut self, chance: u32) -> bool {
        self.is_faulty && self.percent(chance)
    }

    pub fn between(&mut self, least: u64, most: u64) -> Time {
        Time::from_millis(self.rng.u64(least..=most))
    }

    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// What a watch says.
#[derive(Clone)]
pub enum Seen {
    Applied(Arc<Object>),
    Deleted(Kind, Key),
    /// All of the kind was said as it was then.
    Complete(Kind, Time),
}

#[derive(Clone)]
enum Event {
    Applied(Arc<Object>),
    Deleted(Key),
    /// The end of a list, with all that was in it, and when it was made.
    Listed(BTreeSet<Key>, Time),
}

/// The watch of one kind.
#[derive(Default)]
struct Stream {
    /// What was said to exist.
    known: BTreeSet<Key>,
    pending: VecDeque<(Time, Event)>,
    last: Time,
    /// Broken until then: what happens meanwhile is lost, and a list follows.
    broken_until: Option<Time>,
}

impl Stream {
    fn push(&mut self, around: &mut Surroundings, event: Event) {
        if self.broken_until.is_some() {
            return;
        }
        if around.fault(1) {
            self.pending.clear();
            self.broken_until = Some(around.now + around.between(200, 8_000));
            return;
        }
        let delay = if around.fault(10) { around.between(500, 5_000) } else { around.between(0, 300) };
        self.last = self.last.max(around.now + delay);
        if around.fault(5) {
            self.pending.push_back((self.last, event.clone()));
        }
        self.pending.push_back((self.last, event));
    }
}

/// The API server.
#[derive(Default)]
pub struct Server {
    objects: BTreeMap<(Kind, Key), Arc<Object>>,
    version: u64,
    watches: Vec<BTreeMap<Kind, Stream>>,
}

/// What the API server answers to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    NotFound,
    Conflict,
    Invalid,
    /// It did nothing.
    Error,
}

impl Server {
    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(&(kind, key.clone()))
    }

    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let first = (kind, (String::new(), String::new()));
        self.objects
            .range(first..)
            .take_while(move |((other, _), _)| *other == kind)
            .map(|(_, object)| object)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        match self.get(Kind::Pod, key)?.as_ref() {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    pub fn pods(&self) -> impl Iterator<Item = (Key, &Pod)> {
        self.of_kind(Kind::Pod).filter_map(|object| match object.as_ref() {
            Object::Pod(pod) => Some((key(&pod.metadata), pod)),
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
            Object::ResourceClaim(claim) => Some((key(&claim.metadata), claim)),
            _ => None,
        })
    }

    /// A number that was never given before.
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
        let (kind, key) = (object.kind(), key(object.metadata()));
        let object = Arc::new(object);
        self.objects.insert((kind, key), Arc::clone(&object));
        self.tell(around, kind, Event::Applied(object));
    }

    /// Taints get the time at which they came.
    fn date_taints(&self, around: &Surroundings, slice: &mut ResourceSlice) {
        let before = match self.get(Kind::ResourceSlice, &key(&slice.metadata)).map(AsRef::as_ref) {
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
            self.check_owners(around, key);
        }
    }

    /// No device has two owners.
    fn check_owners(&self, around: &mut Surroundings, name: &Key) {
        let devices = |claim: &ResourceClaim| -> Vec<(String, String)> {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            let results = allocation.into_iter().flat_map(outcome::results);
            results.map(|result| (result.pool.clone(), result.device.clone())).collect()
        };
        let overlap = |one: &(String, String), other: &(String, String)| {
            let part = |longer: &str, whole: &str| longer.starts_with(&format!("{whole}-mig"));
            one == other || (one.0 == other.0 && (part(&one.1, &other.1) || part(&other.1, &one.1)))
        };
        let Some(mine) = self.claim(name).map(devices) else { return };
        for (other, claim) in self.claims().filter(|(other, _)| other != name) {
            for device in devices(claim) {
                if mine.iter().any(|mine| overlap(mine, &device)) {
                    around.violated(|| format!("{} and {} have {device:?}", name.1, other.1));
                }
            }
        }
    }

    fn found_claim(&self, around: &Surroundings, claim: &ClaimReference) -> Result<&ResourceClaim, Answer> {
        let found = self.claim(&claim.key).ok_or(Answer::NotFound)?;
        let is_same = found.metadata.uid.as_ref() == Some(&claim.uid)
            && found.metadata.resource_version.as_ref() == Some(&claim.resource_version);
        if is_same || around.has(Bug::VersionNotChecked) { Ok(found) } else { Err(Answer::Conflict) }
    }

    /// Writes the epoch on a claim; a claim that has it stays as it is.
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
        self.update_claim(around, &claim.key, |found| {
            found.status.get_or_insert_default().allocation = Some(allocation.clone());
        });
        Answer::Done
    }

    /// Takes an allocation back that nobody has reserved.
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

    /// Writes on the pod which nodes refused it.
    pub fn note_refusals(
        &mut self,
        around: &mut Surroundings,
        pod: &PodReference,
        nodes: &RefusedNodes,
    ) -> Answer {
        if let Err(answer) = self.found(around, pod) {
            return answer;
        }
        self.update_pod(around, &pod.key, |found| {
            let annotations = found.metadata.annotations.get_or_insert_default();
            annotations.insert(REFUSED_NODES_ANNOTATION.to_owned(), nodes.encode().unwrap_or_default());
        });
        Answer::Done
    }

    pub fn delete(&mut self, around: &mut Surroundings, kind: Kind, key: &Key) {
        if self.objects.remove(&(kind, key.clone())).is_some() {
            self.tell(around, kind, Event::Deleted(key.clone()));
        }
    }

    fn tell(&mut self, around: &mut Surroundings, kind: Kind, event: Event) {
        for watch in &mut self.watches {
            if let Some(stream) = watch.get_mut(&kind) {
                stream.push(around, event.clone());
            }
        }
    }

    /// Starts watching everything; the number is for [`Self::poll`].
    pub fn watch(&mut self, around: &mut Surroundings) -> usize {
        self.watches.push(BTreeMap::new());
        let watch = self.watches.len() - 1;
        self.watch_anew(around, watch);
        watch
    }

    /// As a process that starts: nothing is known.
    pub fn watch_anew(&mut self, around: &mut Surroundings, watch: usize) {
        for kind in KINDS {
            let begins = Some(around.now + around.between(0, 2_000));
            self.watches[watch].insert(kind, Stream { broken_until: begins, ..Stream::default() });
        }
    }

    /// Begins the watch of a kind anew; what it said to exist is remembered.
    pub fn list_anew(&mut self, around: &mut Surroundings, watch: usize, kind: Kind) {
        if let Some(stream) = self.watches[watch].get_mut(&kind) {
            stream.pending.clear();
            stream.broken_until = Some(around.now + around.between(0, 1_000));
        }
    }

    /// What the watches say now.
    pub fn poll(&mut self, around: &mut Surroundings, watch: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        let first = around.rng.usize(0..KINDS.len());
        for number in 0..KINDS.len() {
            let kind = KINDS[(first + number) % KINDS.len()];
            let begins = self.watches[watch].get(&kind).and_then(|stream| stream.broken_until);
            let list: Option<Vec<Arc<Object>>> =
                begins.filter(|begins| *begins <= around.now).map(|_| self.of_kind(kind).cloned().collect());
            let Some(stream) = self.watches[watch].get_mut(&kind) else { continue };
            if let Some(list) = list {
                stream.broken_until = None;
                let at = stream.last.max(around.now + around.between(0, 500));
                stream.last = at;
                let keys = list.iter().map(|object| key(object.metadata())).collect();
                stream.pending.extend(list.into_iter().map(|object| (at, Event::Applied(object))));
                stream.pending.push_back((at, Event::Listed(keys, around.now)));
            }
            while stream.pending.front().is_some_and(|(at, _)| *at <= around.now) {
                let Some((_, event)) = stream.pending.pop_front() else { break };
                match event {
                    Event::Applied(object) => {
                        stream.known.insert(key(object.metadata()));
                        seen.push(Seen::Applied(object));
                    }
                    Event::Deleted(key) => {
                        stream.known.remove(&key);
                        seen.push(Seen::Deleted(kind, key));
                    }
                    Event::Listed(keys, made) => {
                        if !around.has(Bug::RelistWithoutDeletions) {
                            let gone = stream.known.difference(&keys).cloned();
                            seen.extend(gone.map(|key| Seen::Deleted(kind, key)));
                        }
                        stream.known = keys;
                        seen.push(Seen::Complete(kind, made));
                    }
                }
            }
        }
        seen
    }

    fn found(&self, around: &Surroundings, pod: &PodReference) -> Result<&Pod, Answer> {
        let found = self.pod(&pod.key).ok_or(Answer::NotFound)?;
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

    /// Removes our gate; `is_steer`: after a node was proposed.
    pub fn lift(&mut self, around: &mut Surroundings, pod: &PodReference, is_steer: bool) -> Answer {
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
            around.violated(|| format!("{}: the gate of another pod of this name was lifted", pod.key.1));
        } else if gates.len() > 1 {
            around.violated(|| format!("{}: lifted while it has other gates: {gates:?}", pod.key.1));
        } else if is_steer && nominated.is_none() {
            around.violated(|| format!("{}: lifted before a node was proposed", pod.key.1));
        }
        self.update_pod(around, &pod.key, |found| {
            let gates = &mut found.spec.get_or_insert_default().scheduling_gates;
            gates.iter_mut().for_each(|gates| gates.retain(|gate| gate.name != GATE));
        });
        Answer::Done
    }
}

/// The names of a pod's gates.
pub fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| gate.name.clone()).collect()
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}
