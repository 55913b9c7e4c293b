//! The loop itself.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimStatus};
use tessera_cluster::subject::{PodObstacle, Subject, Wanted};
use tessera_cluster::{Asker, Cluster, Key, Kind, Object, ObjectError, key, outcome};

use crate::Time;
use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::intent::{Intent, PodReference};
use crate::ranking::{self, Fit, Rankings, View};
use crate::refusals::{self, Refusals};
use crate::steers::{Steer, Steers};
use crate::summary::{self, PoolSummary, Shape};

/// Something that was seen.
#[derive(Debug, Clone)]
pub enum Observation {
    /// An object was added or changed.
    Applied(Box<Object>),
    /// An object is gone.
    Deleted(Kind, Key),
    /// An intent for the pod was carried out, or was not: then it is decided anew after a pause.
    Carried {
        /// The pod.
        pod: PodReference,
        /// Whether all of it was done.
        is_done: bool,
    },
}

/// The decision loop.
pub struct Decider {
    driver: String,
    cluster: Cluster,
    asker: Asker,
    fleet: Fleet,
    rankings: Rankings,
    steers: Steers,
    refusals: Refusals,
    /// Pods with our gate.
    waiting: BTreeMap<Key, Waiting>,
    /// Of those, the ones to look at next whatever else happens.
    queue: BTreeSet<Key>,
    /// Pods without our gate that another controller, or this one before it was restarted, sent to a node.
    adopted: BTreeSet<Key>,
    /// Nodes where a claim got or gave back devices: pods on their way there may get others than was thought.
    reallocated: BTreeSet<String>,
    /// Nodes where there were too few devices for all pods on their way there when it was looked at last.
    crowded: BTreeSet<String>,
    /// The fleet as it was when all waiting pods were looked at last.
    planned: usize,
}

/// A pod with our gate.
#[derive(Debug, Default)]
struct Waiting {
    /// Why it does not go on; empty until it was looked at.
    why: String,
    told: Option<(String, Time)>,
    /// After failures: not before then.
    not_before: Time,
    failures: u32,
    /// Its gate is being removed without a proposal.
    is_released: bool,
    shape_text: Option<String>,
}

/// What to do with a pod.
enum Choice {
    Node {
        node: String,
        suitable: usize,
    },
    /// All that suits is cards of pools that kube-scheduler allocates alone.
    Native,
    /// Why, and the nodes that have the devices but no room besides.
    Nowhere {
        sentence: String,
        crowded: Vec<String>,
    },
    /// kube-scheduler would end its attempt with this error.
    Fatal(String),
}

/// How often a pod's owner is told a new reason.
const TELL_EVERY: Time = Time::from_secs(30);

/// The longest pause after a write that failed.
const LONGEST_PAUSE: Time = Time::from_secs(30);

impl Decider {
    /// A loop for the devices of this DRA driver that knows nothing yet. Feed it everything that exists before the first
    /// [`Self::decide`].
    #[must_use]
    pub fn new(driver_name: &str) -> Self {
        // Ids of shares that are expected. They are never written anywhere, so they only need to differ.
        let mut shares = 0u64;
        let share_id = move || {
            shares += 1;
            format!("00000000-0000-4000-8000-{shares:012x}")
        };
        Decider {
            driver: driver_name.to_owned(),
            cluster: Cluster::default(),
            asker: Asker::new(share_id),
            fleet: Fleet::default(),
            rankings: Rankings::default(),
            steers: Steers::default(),
            refusals: Refusals::default(),
            waiting: BTreeMap::new(),
            queue: BTreeSet::new(),
            adopted: BTreeSet::new(),
            reallocated: BTreeSet::new(),
            crowded: BTreeSet::new(),
            planned: 0,
        }
    }

    /// Takes in what was seen.
    ///
    /// # Errors
    /// The object contains something that the API server would not accept. It then counts as gone.
    pub fn observe(&mut self, now: Time, observation: Observation) -> Result<(), ObservationError> {
        match observation {
            Observation::Applied(object) => self.apply(now, *object),
            Observation::Deleted(kind, key) => {
                self.delete(kind, &key);
                Ok(())
            }
            Observation::Carried { pod, is_done } => {
                self.carried(now, &pod, is_done);
                Ok(())
            }
        }
    }

    fn apply(&mut self, now: Time, object: Object) -> Result<(), ObservationError> {
        let key = key(object.metadata());
        let kind = object.kind();
        let mut report = Ok(());
        let mut is_reallocated = false;
        match &object {
            Object::ResourceSlice(slice) => {
                report = self.fleet.apply_slice(slice, &self.driver);
                self.mark_slice(&key.1);
                if slice.spec.node_name.is_none() {
                    self.fleet.mark_all();
                }
            }
            Object::ResourceClaim(claim) => {
                is_reallocated =
                    self.cluster.objects().claims.get(&key).and_then(allocation) != allocation(claim);
                if is_reallocated {
                    self.mark_claim(&key);
                }
            }
            Object::Pod(pod) => self.see_pod(now, &key, pod),
            _ => {}
        }
        let before = self.node_before(kind, &key);
        if let Err(error) = self.cluster.apply(object) {
            self.cluster.delete(kind, &key);
            self.fleet.mark_all();
            return Err(error.into());
        }
        match kind {
            Kind::ResourceSlice => self.mark_slice(&key.1),
            Kind::ResourceClaim => {
                if is_reallocated {
                    self.mark_claim(&key);
                }
                self.see_claim(&key);
            }
            Kind::Node if before.as_ref() != self.cluster.objects().nodes.get(&key) => {
                self.fleet.mark(&key.1)
            }
            Kind::Node | Kind::Pod => {}
            Kind::ResourceClaimTemplate => self.queue.extend(self.waiting.keys().cloned()),
            Kind::DeviceClass | Kind::DeviceTaintRule => {
                self.rankings.clear();
                self.fleet.mark_all();
            }
            Kind::PersistentVolume | Kind::PersistentVolumeClaim => self.fleet.mark_all(),
        }
        report.map_err(|error| ObservationError::Report { slice: key.1, error: error.to_string() })
    }

    fn node_before(&self, kind: Kind, key: &Key) -> Option<k8s_openapi::api::core::v1::Node> {
        (kind == Kind::Node).then(|| self.cluster.objects().nodes.get(key).cloned()).flatten()
    }

    fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::ResourceSlice => {
                let nodes = self.nodes_of_slice(&key.1);
                for node in &nodes {
                    self.fleet.delete_slice(&key.1, node);
                }
                self.cluster.delete(kind, key);
                match nodes.as_slice() {
                    [] => self.fleet.mark_all(),
                    nodes => nodes.iter().for_each(|node| self.fleet.mark_devices(node)),
                }
                return;
            }
            Kind::ResourceClaim => self.mark_claim(key),
            Kind::Pod => {
                if let Some(node) = self.node_of_pod(key) {
                    self.fleet.mark(&node);
                }
                self.forget_steer(key);
                self.waiting.remove(key);
                self.queue.remove(key);
                self.adopted.remove(key);
            }
            Kind::Node => self.fleet.mark(&key.1),
            Kind::DeviceClass | Kind::DeviceTaintRule => {
                self.rankings.clear();
                self.fleet.mark_all();
            }
            Kind::ResourceClaimTemplate | Kind::PersistentVolume | Kind::PersistentVolumeClaim => {}
        }
        self.cluster.delete(kind, key);
    }

    fn node_of_pod(&self, key: &Key) -> Option<String> {
        self.cluster.objects().pods.get(key)?.spec.as_ref()?.node_name.clone()
    }

    /// The nodes that a slice in the inventory is for.
    fn nodes_of_slice(&self, slice: &str) -> Vec<String> {
        self.cluster.inventory().node_of_slice(slice).map(str::to_owned).into_iter().collect()
    }

    fn mark_slice(&mut self, slice: &str) {
        for node in self.nodes_of_slice(slice) {
            self.fleet.mark_devices(&node);
        }
    }

    /// Marks the nodes on which the claim has devices.
    fn mark_claim(&mut self, key: &Key) {
        let Some(claim) = self.cluster.objects().claims.get(key) else { return };
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let mut nodes = BTreeSet::new();
        for result in allocation.into_iter().flat_map(outcome::results) {
            for device in self.cluster.inventory().find(&result.driver, &result.pool, &result.device) {
                nodes.extend(device.node_name().map(str::to_owned));
            }
        }
        for node in nodes {
            self.fleet.mark(&node);
            self.reallocated.insert(node);
        }
    }

    /// A claim changed: pods that use it are looked at again, and one on its way may have arrived.
    fn see_claim(&mut self, claim: &Key) {
        let owner = self.cluster.objects().claims.get(claim).and_then(|claim| {
            let owners = claim.metadata.owner_references.iter().flatten();
            owners.into_iter().find(|owner| owner.kind == "Pod").map(|owner| owner.name.clone())
        });
        match owner {
            Some(pod) => self.see_claim_of(&(claim.0.clone(), pod)),
            None => {
                let on_their_way = self.steers.keys().filter(|pod| pod.0 == claim.0);
                let pods: Vec<Key> =
                    self.waiting.keys().filter(|pod| pod.0 == claim.0).chain(on_their_way).cloned().collect();
                pods.iter().for_each(|pod| self.see_claim_of(pod));
            }
        }
    }

    fn see_claim_of(&mut self, pod: &Key) {
        if self.waiting.contains_key(pod) {
            self.queue.insert(pod.clone());
        }
        let Some(steer) = self.steers.get(pod).filter(|steer| !steer.is_allocated) else { return };
        let node = steer.node.clone();
        let Some(object) = self.cluster.objects().pods.get(pod) else { return };
        let subject = tessera_cluster::subject::of_pod(self.cluster.objects(), object);
        if !has_its_devices(&subject) {
            return;
        }
        if node_name(object).is_some() {
            self.forget_steer(pod);
        } else {
            self.cluster.forget_claims(pod);
            self.fleet.mark(&node);
            if let Some(steer) = self.steers.get_mut(pod) {
                steer.is_allocated = true;
            }
        }
    }

    fn see_pod(&mut self, now: Time, key: &Key, pod: &Pod) {
        let before = self.cluster.objects().pods.get(key);
        let same_uid = before.is_some_and(|before| before.metadata.uid == pod.metadata.uid);
        let is_as_before = same_uid
            && before
                .is_some_and(|before| node_name(before) == node_name(pod) && phase(before) == phase(pod));
        if !is_as_before {
            let nodes: Vec<String> =
                before.and_then(node_name).into_iter().chain(node_name(pod)).map(str::to_owned).collect();
            nodes.iter().for_each(|node| self.fleet.mark(node));
        }
        if !same_uid {
            self.forget_steer(key);
            self.waiting.remove(key);
        }
        self.adopted.remove(key);
        if is_gated(pod) && pod.metadata.deletion_timestamp.is_none() {
            self.waiting.entry(key.clone()).or_default();
            self.queue.insert(key.clone());
            return;
        }
        self.waiting.remove(key);
        self.queue.remove(key);
        let has_ended =
            pod.metadata.deletion_timestamp.is_some() || matches!(phase(pod), Some("Succeeded" | "Failed"));
        let Some(steer) = self.steers.get(key) else {
            let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_ref());
            if !has_ended && node_name(pod).is_none() && nominated.is_some() && !is_refused(pod) {
                self.adopted.insert(key.clone());
            }
            return;
        };
        let is_elsewhere = node_name(pod).is_some_and(|node| node != steer.node);
        if is_elsewhere || (node_name(pod).is_none() && is_refused(pod)) {
            self.refusals.add(refusals::owner(pod), &steer.node, now);
        }
        if has_ended || is_elsewhere || (node_name(pod).is_none() && is_refused(pod)) {
            self.forget_steer(key);
        } else if node_name(pod).is_some() {
            // Its claims come by another watch, perhaps later; until then their devices are not free.
            let subject = tessera_cluster::subject::of_pod(self.cluster.objects(), pod);
            if steer.is_allocated || has_its_devices(&subject) {
                self.forget_steer(key);
            } else {
                self.cluster.forget_room(key);
            }
        }
    }

    fn forget_steer(&mut self, key: &Key) {
        if let Some(steer) = self.steers.remove(key) {
            self.cluster.forget(key);
            self.fleet.mark(&steer.node);
        }
    }

    fn carried(&mut self, now: Time, pod: &PodReference, is_done: bool) {
        let found = self.cluster.objects().pods.get(&pod.key);
        let is_same = found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&pod.uid));
        // One that was seen without the gate is on its way, even if the answer to the write was lost.
        if is_done || !is_same || !self.waiting.contains_key(&pod.key) {
            return;
        }
        self.forget_steer(&pod.key);
        if let Some(waiting) = self.waiting.get_mut(&pod.key) {
            waiting.is_released = false;
            waiting.failures += 1;
            let pause = Time::from_secs(1 << waiting.failures.min(5).saturating_sub(1));
            waiting.not_before = now + pause.min(LONGEST_PAUSE);
            self.queue.insert(pod.key.clone());
        }
    }

    /// What is to be done now.
    pub fn decide(&mut self, now: Time) -> Vec<Intent> {
        self.adopt();
        self.assume_anew();
        if self.refusals.next_end().is_some_and(|end| end <= now) {
            self.refusals.remove_ended(now);
            self.queue.extend(self.waiting.keys().cloned());
        }
        let all = self.fleet.now() != self.planned;
        let pods: Vec<Key> =
            if all { self.waiting.keys().cloned().collect() } else { self.queue.iter().cloned().collect() };
        self.queue.clear();
        let mut pods: Vec<Key> =
            pods.into_iter().filter(|pod| self.cluster.objects().pods.contains_key(pod)).collect();
        pods.sort_by_cached_key(|key| {
            let pod = &self.cluster.objects().pods[key];
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
            (std::cmp::Reverse(priority), pod.metadata.creation_timestamp.clone(), key.clone())
        });
        let mut intents = Vec::new();
        for key in pods {
            let Some(waiting) = self.waiting.get(&key) else { continue };
            if waiting.not_before > now {
                self.queue.insert(key);
            } else if !waiting.is_released && self.steers.get(&key).is_none() {
                intents.extend(self.look_at(now, &key));
            }
        }
        // What was sent on its way since then takes room, so that nothing else fits now that did not fit before.
        self.planned = self.fleet.now();
        intents
    }

    /// When to call [`Self::decide`] again even if nothing is observed.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        let pauses = self.queue.iter().filter_map(|key| Some(self.waiting.get(key)?.not_before));
        pauses.chain(self.refusals.next_end().filter(|_| !self.waiting.is_empty())).min()
    }

    /// Counts pods that are on their way already as such.
    fn adopt(&mut self) {
        // Those that do not fit stay here: what is in their way may have gone already, unseen.
        let adopted: Vec<Key> = self.adopted.iter().cloned().collect();
        for key in adopted {
            let Some(pod) = self.cluster.objects().pods.get(&key).cloned() else { continue };
            let Some(node) = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone()) else {
                continue;
            };
            let Ok(demand) = Demand::of(self.cluster.objects(), &pod) else { continue };
            if demand.is_open()
                && demand.obstacle().is_none()
                && let Some(fit) = self.fit(&demand, &node)
            {
                self.send(&key, &pod, &demand, &node, fit);
                self.adopted.remove(&key);
            }
        }
    }

    /// Gives pods on their way other devices where theirs went to somebody else: kube-scheduler takes pods in an order of
    /// its own.
    fn assume_anew(&mut self) {
        let mut nodes = std::mem::take(&mut self.reallocated);
        if self.fleet.now() != self.planned {
            nodes.append(&mut self.crowded);
        }
        let mut open = Vec::new();
        for (key, node) in self.steers.to_any(&nodes) {
            let Some(pod) = self.cluster.objects().pods.get(&key) else { continue };
            let Ok(demand) = Demand::of(self.cluster.objects(), pod) else { continue };
            if demand.obstacle().is_none() {
                open.push((key, node, demand));
            }
        }
        open.iter().for_each(|(key, ..)| self.cluster.forget_claims(key));
        for (key, node, demand) in open {
            let name = (String::new(), node.clone());
            let Some(object) = self.cluster.objects().nodes.get(&name) else { continue };
            let (wanted, claims) = demand.on(object);
            let held = self.cluster.held();
            if let Ok(Some(allocations)) = self.cluster.allocate(object, &claims, held, &mut self.asker) {
                let claims = with_devices(&wanted, allocations);
                // Cannot fail: the allocator wrote the quantities.
                let _ = self.cluster.assume_claims(&key, claims);
            } else {
                self.crowded.insert(node.clone());
            }
            self.fleet.mark(&node);
        }
    }

    fn look_at(&mut self, now: Time, key: &Key) -> Option<Intent> {
        let pod = self.cluster.objects().pods.get(key)?.clone();
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        if let Some(other) = gates.into_iter().find(|gate| gate.name != tessera_api::steering::GATE) {
            return self.waits(
                now,
                key,
                &pod,
                format!("waits for its scheduling gate {}", other.name),
                false,
            );
        }
        let demand = match Demand::of(self.cluster.objects(), &pod) {
            Ok(demand) => demand,
            Err(error) => return Some(self.release(key, &pod, error.to_string())),
        };
        if let Some(obstacle) = demand.obstacle() {
            let text = obstacle.to_string();
            return if demand.subject.claims.is_empty() && !text.contains("Claim") {
                Some(self.release(key, &pod, text))
            } else {
                self.waits(now, key, &pod, text, true)
            };
        }
        if !demand.is_open() {
            return Some(self.release(key, &pod, "no claim of the pod needs devices".to_owned()));
        }
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.shape_text = Some(demand.text());
        }
        let shared: Vec<Key> = demand.shared().collect();
        if let Some(node) = self.steers.node_of_claims(&shared).map(str::to_owned) {
            // The claim gets its devices with the pod that came first; this one must go there, too.
            let text = format!("waits until another pod's claim has devices on {node}");
            return self.waits(now, key, &pod, text, false);
        }
        match self.choose(now, &demand, &refusals::owner(&pod)) {
            Choice::Node { node, suitable } => {
                let fit = self.fit(&demand, &node)?;
                self.send(key, &pod, &demand, &node, fit);
                let why = format!("of {suitable} suitable nodes, {node} loses least by it");
                Some(Intent::Steer { pod: reference(&pod), node, why })
            }
            Choice::Native => {
                let why = "only cards of pools with native allocation suit now".to_owned();
                Some(self.release(key, &pod, why))
            }
            Choice::Fatal(error) => Some(self.release(key, &pod, error)),
            Choice::Nowhere { sentence, crowded } => {
                let why = if let Some(node) = crowded.iter().find(|node| self.could_preempt(&pod, node)) {
                    format!("pods of lower priority could make room on {node}; that is kube-scheduler's part")
                } else if !self.is_ours(&demand) {
                    "no card of a steered pool is what it asks for".to_owned()
                } else {
                    return self.waits(now, key, &pod, sentence, true);
                };
                Some(self.release(key, &pod, why))
            }
        }
    }

    /// The best node that did not refuse a pod of this owner a short while ago.
    fn choose(&mut self, now: Time, demand: &Demand, owner: &str) -> Choice {
        let mut view = View {
            cluster: &self.cluster,
            fleet: &mut self.fleet,
            asker: &mut self.asker,
            driver: &self.driver,
        };
        let ranking = self.rankings.of(demand, &mut view);
        if let Some(error) = ranking.fatal() {
            return Choice::Fatal(error.to_owned());
        }
        let name = |index| view.fleet.node(index).name.clone();
        let mut best = ranking.best().map(|(score, index)| (score, name(index)));
        match best.find(|(_, node)| !self.refusals.contains(owner, node, now)) {
            Some((score, _)) if score.is_native => Choice::Native,
            Some((_, node)) => Choice::Node { node, suitable: ranking.suitable() },
            None => Choice::Nowhere {
                sentence: ranking.sentence(),
                crowded: ranking.without_room().map(name).collect(),
            },
        }
    }

    fn fit(&mut self, demand: &Demand, node: &str) -> Option<Fit> {
        let index = self.fleet.find(node)?;
        let mut view = View {
            cluster: &self.cluster,
            fleet: &mut self.fleet,
            asker: &mut self.asker,
            driver: &self.driver,
        };
        ranking::fit(demand, index, &mut view).ok()?.ok()
    }

    /// Counts the pod as on its way to the node.
    fn send(&mut self, key: &Key, pod: &Pod, demand: &Demand, node: &str, fit: Fit) {
        let Some(object) = self.cluster.objects().nodes.get(&(String::new(), node.to_owned())) else {
            return;
        };
        let (wanted, _) = demand.on(object);
        let claims = with_devices(&wanted, fit.allocations);
        let is_allocated = claims.is_empty();
        let shared = demand.shared().collect();
        // Cannot fail: the allocator wrote the quantities.
        let _ = self.cluster.assume(key, pod, node, claims);
        self.steers.insert(key.clone(), Steer { node: node.to_owned(), shared, is_allocated });
        self.fleet.mark(node);
    }

    /// Whether any device of a steered node, free or not, is what the pod asks for.
    fn is_ours(&mut self, demand: &Demand) -> bool {
        let steered = self.fleet.nodes().filter(|node| node.is_steered());
        let names: Vec<String> = steered.map(|node| node.name.clone()).collect();
        names.iter().any(|name| self.is_ours_on(demand, name))
    }

    fn is_ours_on(&mut self, demand: &Demand, node: &str) -> bool {
        let Some(node) = self.cluster.objects().nodes.get(&(String::new(), node.to_owned())) else {
            return false;
        };
        let (_, claims) = demand.on(node);
        self.cluster.has_what_is_asked(node, &claims, &self.driver, &mut self.asker).unwrap_or(false)
    }

    /// Whether a pod of lower priority runs on the node, and this one may preempt it.
    fn could_preempt(&self, pod: &Pod, node: &str) -> bool {
        let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
        policy != Some("Never")
            && self.cluster.objects().pods.values().any(|other| {
                node_name(other) == Some(node)
                    && !matches!(phase(other), Some("Succeeded" | "Failed"))
                    && priority(other) < priority(pod)
            })
    }

    fn release(&mut self, key: &Key, pod: &Pod, why: String) -> Intent {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.why.clone_from(&why);
            waiting.is_released = true;
        }
        Intent::Release { pod: reference(pod), why }
    }

    fn waits(&mut self, now: Time, key: &Key, pod: &Pod, why: String, tell: bool) -> Option<Intent> {
        let waiting = self.waiting.get_mut(key)?;
        waiting.why.clone_from(&why);
        let is_told = match &waiting.told {
            Some((told, at)) => *told == why || now < *at + TELL_EVERY,
            None => false,
        };
        if !tell || is_told {
            return None;
        }
        waiting.told = Some((why.clone(), now));
        Some(Intent::Tell { pod: reference(pod), message: why })
    }

    /// Pods with our gate, each with why it does not go on.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &str)> {
        self.waiting.iter().map(|(key, waiting)| (key, waiting.why.as_str()))
    }

    /// Number of pods on their way to the node that was proposed for them.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.steers.len()
    }

    /// What it knows of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What is to be said of each GpuPool that a node reports.
    pub fn pools(&mut self) -> BTreeMap<String, PoolSummary> {
        let mut pools = summary::of_fleet(&mut self.fleet, &self.cluster, &self.driver);
        let mut shapes: BTreeMap<String, (u32, Key)> = BTreeMap::new();
        for (key, waiting) in &self.waiting {
            if let Some(text) = &waiting.shape_text
                && self.steers.get(key).is_none()
            {
                shapes.entry(text.clone()).or_insert_with(|| (0, key.clone())).0 += 1;
            }
        }
        for (text, (pods, example)) in shapes {
            let Some(pod) = self.cluster.objects().pods.get(&example).cloned() else { continue };
            let Ok(demand) = Demand::of(self.cluster.objects(), &pod) else { continue };
            for pool in self.pools_asked(&demand) {
                pools.entry(pool).or_default().unmet.push(Shape { text: text.clone(), pods });
            }
        }
        for summary in pools.values_mut() {
            summary.unmet.sort_by_key(|shape| std::cmp::Reverse(shape.pods));
            summary.unmet.truncate(MOST_SHAPES);
        }
        pools
    }

    /// The pools on whose nodes there is what the pod asks for, free or not.
    fn pools_asked(&mut self, demand: &Demand) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        for index in 0..self.fleet.len() {
            let node = self.fleet.node(index as u32);
            let Some((_, report)) = &node.report else { continue };
            let pools: BTreeSet<String> =
                report.cards.values().filter_map(|card| card.pool.clone()).collect();
            let name = node.name.clone();
            if !pools.is_subset(&asked) && self.is_ours_on(demand, &name) {
                asked.extend(pools);
            }
        }
        asked
    }
}

/// Shapes of unmet demand that a pool's status has.
const MOST_SHAPES: usize = 16;

/// Why something that was seen cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObservationError {
    /// The object contains something that the API server would not accept.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A slice's annotation is no node report; the node counts as one without pools.
    #[error(
        "ResourceSlice {slice}: the annotation {} is no node report: {error}",
        tessera_api::node_report::ANNOTATION
    )]
    Report {
        /// The slice.
        slice: String,
        /// What is wrong.
        error: String,
    },
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// The claims with these allocations.
fn with_devices(wanted: &[&Wanted], allocations: Vec<AllocationResult>) -> Vec<ResourceClaim> {
    let claims = wanted.iter().zip(allocations).map(|(wanted, allocation)| ResourceClaim {
        status: Some(ResourceClaimStatus { allocation: Some(allocation), ..Default::default() }),
        ..wanted.claim.clone()
    });
    claims.collect()
}

fn reference(pod: &Pod) -> PodReference {
    PodReference { key: key(&pod.metadata), uid: pod.metadata.uid.clone().unwrap_or_default() }
}

/// Whether all claims of the pod were seen with devices.
fn has_its_devices(subject: &Subject) -> bool {
    let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
    subject.obstacles.iter().all(is_gate) && subject.claims.iter().all(Wanted::is_allocated)
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == tessera_api::steering::GATE)
}

/// Whether kube-scheduler tried the pod and found no node.
fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}
