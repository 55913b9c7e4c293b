//! What must hold: at every write, at every intent, and at the end.

mod devices;
pub mod gangs;
mod queue;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::gpu_pool::Allocation;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_api::steering::GATE;
use tessera_api::{NodeReport, node_report};
use tessera_cluster::subject::PodObstacle;
use tessera_cluster::{AllocationExt, Asker, Cluster, Key, Kind, Object, Objects, subject};
use tessera_decide::{Decider, Intent, Observation, PodReference, Time};

use super::api_server::{Server, Surroundings, gates, has_ended, is_refused, node_name};
use super::replica::Replica;
use super::scheduler;
use super::users::cards_asked;
use crate::objects::{DRIVER, share_ids};

pub use devices::devices_of;

/// No replica sees anything later than this.
const LATEST: Time = Time::from_secs(25);

impl Replica {
    fn pod(&self, key: &Key) -> Option<&Pod> {
        match self.view.get(&(Kind::Pod, key.clone()))?.as_ref() {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.of_kind(Kind::Pod).filter_map(|object| match object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        })
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let objects = self.view.iter().filter(move |((other, _), _)| *other == kind);
        objects.map(|(_, object)| object.as_ref())
    }

    /// The pod's first claim, as it was seen.
    fn claim(&self, pod: &Pod) -> Option<&ResourceClaim> {
        let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        let name = statuses.first()?.resource_claim_name.clone()?;
        let key = Key::from(&pod.metadata).with_name(name);
        match self.view.get(&(Kind::ResourceClaim, key))?.as_ref() {
            Object::ResourceClaim(claim) => Some(claim),
            _ => None,
        }
    }

    /// Whether all claims of the pod were seen with devices.
    pub fn has_all_devices(&self, pod: &Pod) -> bool {
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut names =
            statuses.into_iter().flatten().filter_map(|status| status.resource_claim_name.clone());
        statuses.is_some()
            && names.all(|name| {
                let claim = self.view.get(&(Kind::ResourceClaim, Key::new(&namespace, name)));
                matches!(claim.map(AsRef::as_ref), Some(Object::ResourceClaim(claim))
                    if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()))
            })
    }

    fn has_devices(&self, pod: &Pod) -> bool {
        let claim = self.claim(pod);
        claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.allocation.is_some()))
    }

    /// The node's pool, if all its cards are in one that is steered.
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

    /// Whole cards of the node, and how many of them claims and pods on their way take; `None` where parts of cards are
    /// about, for then it depends on which.
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
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            for result in allocation.into_iter().flat_map(AllocationExt::results) {
                if result.pool == format!("{DRIVER}/{node}") {
                    if result.device.contains("mig") {
                        return None;
                    }
                    taken += 1;
                }
            }
        }
        for object in self.of_kind(Kind::Pod) {
            let Object::Pod(pod) = object else { continue };
            let is_gone = has_ended(pod) || pod.metadata.deletion_timestamp.is_some();
            // A card that pods share is taken by the first of them.
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

/// Pods that were seen to have arrived, or to go elsewhere, are no longer on their way.
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

/// An intent failed: unless the gate was seen to be gone, the pod is not on its way.
pub fn failed(replica: &mut Replica, pod: &PodReference) {
    if replica.pod(&pod.key).is_none_or(|pod| !gates(pod).is_empty()) {
        replica.sent.remove(pod);
    }
}

/// Whether the replica could decide this by what it has seen.
pub fn intent(around: &mut Surroundings, replica: &Replica, intent: &Intent) {
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
        Intent::Steer { node, .. } => steer(around, replica, pod, node),
        Intent::Release { why, .. } => release(around, replica, pod, why),
        Intent::Evict { why, .. } => gangs::may_evict(around, replica, why),
        // Which of its devices are free is checked when it is written.
        Intent::Allocate { claims, node, .. } if !claims.is_empty() => {
            queue::may_allocate(around, replica, pod, node);
        }
        Intent::Allocate { lifts_gate: true, .. } => gangs::may_lift(around, replica, pod),
        _ => {}
    }
}

fn steer(around: &mut Surroundings, replica: &Replica, pod: &Pod, node: &str) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    match replica.view.get(&(Kind::Node, Key::cluster(node))).map(AsRef::as_ref) {
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
    // If too much is on its way already, some of it cannot arrive, and nobody knows what.
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

fn truth(server: &Server) -> Cluster {
    let mut objects = Objects::default();
    for object in server.all() {
        let key = Key::from(object.metadata());
        match object.as_ref().clone() {
            Object::Node(object) => drop(objects.nodes.insert(key, object)),
            Object::Pod(object) => drop(objects.pods.insert(key, Box::new(object))),
            Object::ResourceClaim(object) => drop(objects.claims.insert(key, Box::new(object))),
            Object::ResourceClaimTemplate(object) => drop(objects.templates.insert(key, object)),
            Object::ResourceSlice(object) => drop(objects.slices.insert(key, object)),
            Object::DeviceClass(object) => drop(objects.classes.insert(key, object)),
            _ => {}
        }
    }
    Cluster::of(objects).expect("good objects")
}

/// What must hold when nothing has failed for long.
pub fn end(around: &mut Surroundings, server: &Server, replicas: &mut [Replica], quiet_since: Time) {
    let mut cluster = truth(server);
    let mut asker = scheduler::asker();
    gangs::end(around, server, &mut cluster, &mut asker);
    for (key, pod) in server.pods() {
        if gates(pod).is_empty() {
            continue;
        }
        let name = &key.name;
        if cards_asked(pod) == Some(0) && pod.spec.as_ref().is_some_and(asks_for_nothing) {
            around.violated(|| format!("{name} asks for nothing of ours and keeps its gate"));
        }
        let subject = subject::of_pod(cluster.objects(), pod);
        if !subject.claims.is_empty() && subject.claims.iter().all(|wanted| wanted.is_allocated()) {
            around.violated(|| format!("{name} has its devices and keeps its gate"));
        }
        for node in cluster.objects().nodes.values().filter(|_| !gangs::is_member(pod)) {
            let node_name = node.metadata.name.clone().unwrap_or_default();
            if !scheduler::dislikes(pod, &node_name)
                && scheduler::fit(&cluster, &subject, node, &mut asker).is_some()
            {
                around.violated(|| format!("{name} fits on {node_name} and keeps its gate"));
            }
        }
    }
    waits_although_it_fits(around, server, &cluster, &mut asker);
    let is_under_way = |pod: &Pod| gates(pod).is_empty() && node_name(pod).is_none() && !is_refused(pod);
    if let Some((key, _)) = server.pods().find(|(_, pod)| is_under_way(pod) && !has_ended(pod)) {
        let is_without_claim = |(_, pod): (Key, &Pod)| {
            let subject = subject::of_pod(cluster.objects(), pod);
            !subject.obstacles.is_empty()
        };
        if !server.pods().any(is_without_claim) {
            around.violated(|| format!("kube-scheduler has not looked at {}", key.name));
        }
    }
    for (key, claim) in server.claims() {
        let status = claim.status.as_ref();
        let is_allocated = status.is_some_and(|status| status.allocation.is_some());
        let users = status.iter().flat_map(|status| status.reserved_for.iter().flatten()).count();
        let annotations = claim.metadata.annotations.as_ref();
        // What kube-scheduler gave and could not bind, it leaves to a claim that somebody named.
        let is_ours = annotations.is_some_and(|all| all.contains_key(EPOCH_ANNOTATION));
        if is_allocated && users == 0 && is_ours {
            around.violated(|| format!("{} has devices that nobody uses", key.name));
        }
    }
    let fresh = fresh(around, server);
    for replica in replicas {
        one(around, &cluster, replica, &fresh, quiet_since);
    }
}

/// Pods with a gate or without, for managed cards or others.
fn waits_although_it_fits(around: &mut Surroundings, server: &Server, cluster: &Cluster, asker: &mut Asker) {
    let waits = |pod: &Pod| node_name(pod).is_none() && pod.metadata.deletion_timestamp.is_none();
    for (key, pod) in server.pods().filter(|(_, pod)| waits(pod) && !gangs::is_member(pod)) {
        let subject = subject::of_pod(cluster.objects(), pod);
        let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
        if !subject.obstacles.iter().all(is_gate) {
            continue;
        }
        for (Key { name, .. }, node) in &cluster.objects().nodes {
            let is_kept = devices::has_managed(cluster, name) && queue::is_kept_from(around, server, pod);
            if !is_kept && devices::fits(cluster, &subject, node, asker) {
                around.violated(|| format!("{} fits on {name} and waits", key.name));
            }
        }
    }
}

fn asks_for_nothing(spec: &k8s_openapi::api::core::v1::PodSpec) -> bool {
    let template = spec.resource_claims.iter().flatten().next();
    template.is_none_or(|asked| asked.resource_claim_template_name.as_deref() == Some("nic"))
}

/// A loop that was told what exists, and has decided.
fn fresh(around: &mut Surroundings, server: &Server) -> Decider {
    let mut fresh = Decider::new(DRIVER, share_ids());
    for object in server.all() {
        let object = Box::new(object.as_ref().clone());
        if let Err(error) = fresh.observe(around.now, Observation::Applied(object)) {
            around.violated(|| format!("a good observation was refused: {error}"));
        }
    }
    fresh
}

fn one(
    around: &mut Surroundings,
    cluster: &Cluster,
    replica: &mut Replica,
    fresh: &Decider,
    quiet_since: Time,
) {
    let number = replica.number;
    if replica.last_intent > quiet_since {
        around.violated(|| format!("replica {number} still decides"));
    }
    if replica.is_writing() {
        around.violated(|| format!("replica {number} still writes"));
    }
    let decider = &replica.decider;
    // Those without gates are known as ours only when they were looked at.
    let is_gated = |key: &&Key| cluster.objects().pods.get(*key).is_some_and(|pod| !gates(pod).is_empty());
    let waiting: Vec<&Key> = decider.waiting().map(|(key, _)| key).filter(is_gated).collect();
    if waiting != fresh.waiting().map(|(key, _)| key).collect::<Vec<_>>() {
        around.violated(|| format!("replica {number} counts pods as waiting that do not: {waiting:?}"));
    }
    let is_under_way = |pod: &Pod| gates(pod).is_empty() && node_name(pod).is_none() && !is_refused(pod);
    let under_way = cluster.objects().pods.values().filter(|pod| is_under_way(pod)).count();
    let on_their_way = decider.on_their_way();
    if on_their_way > under_way {
        around.violated(|| format!("replica {number}: {on_their_way} on their way, not {under_way}"));
    }
    let held = |cluster: &Cluster| -> Vec<(String, String, bool)> {
        let devices = cluster.inventory().devices();
        let all = devices.map(|device| {
            let (pool, name) = (device.node_name().unwrap_or_default().to_owned(), device.name().to_owned());
            (pool, name, cluster.held().holds_whole(device))
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    };
    if on_their_way == 0 && held(decider.cluster()) != held(cluster) {
        let (known, true_) = (held(decider.cluster()), held(cluster));
        let wrong: Vec<_> = known.iter().filter(|device| !true_.contains(device)).collect();
        around.violated(|| format!("replica {number} is wrong about what is held: {wrong:?}"));
    }
}
