//! A simulated kube-scheduler: its own late view, devices in upstream's order, and three writes for each pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use tessera_cluster::subject::{self, PodObstacle, Subject};
use tessera_cluster::{Asker, Cluster, Key, Kind, outcome};
use tessera_decide::Time;

use crate::objects::share_ids;

use super::api_server::{Seen, Server, Surroundings, gates, has_ended, is_refused, node_name};

/// Whatever was written was seen after that.
const LATEST: Time = Time::from_secs(20);

/// kube-scheduler.
pub struct Scheduler {
    watch: usize,
    cluster: Cluster,
    asker: Asker,
    not_before: BTreeMap<Key, Time>,
    bindings: Vec<Binding>,
    /// Bound, or given up, but not seen so yet.
    assumed: Vec<(Key, String, Time)>,
    /// It stands still until then.
    paused_until: Time,
}

/// A pod that has a node but is not bound yet.
struct Binding {
    pod: Key,
    uid: String,
    node: String,
    /// Claims, with what they are to get, or have.
    claims: Vec<(Key, AllocationResult, bool)>,
    /// Writes done: devices for each claim that has none, then its user, then the binding.
    done: usize,
    at: Time,
}

/// A reader of a cluster.
pub fn asker() -> Asker {
    Asker::new(share_ids())
}

/// What the pod would get on the node, with the claims in their order; `None` if it does not fit.
pub fn fit(
    cluster: &Cluster,
    subject: &Subject,
    node: &Node,
    asker: &mut Asker,
) -> Option<Vec<(ResourceClaim, AllocationResult)>> {
    let pod = subject.pod.as_ref()?;
    if outcome::refusal(subject, node).is_some() || cluster.shortage(pod, node).is_some() {
        return None;
    }
    let wanted = outcome::to_allocate(subject, node);
    let claims = outcome::converted(&wanted).ok()?;
    let allocations = cluster.allocate(node, &claims, cluster.held(), asker).ok().flatten()?;
    Some(wanted.iter().map(|wanted| wanted.claim.clone()).zip(allocations).collect())
}

/// Whether kube-scheduler refuses the node for reasons of its own: a stand-in for affinity between pods, spreading and
/// the rest.
pub fn dislikes(pod: &Pod, node: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("dislikes")).is_some_and(|disliked| disliked == node)
}

impl Scheduler {
    pub fn new(around: &mut Surroundings, server: &mut Server) -> Self {
        Scheduler {
            watch: server.watch(around),
            cluster: Cluster::default(),
            asker: asker(),
            not_before: BTreeMap::new(),
            bindings: Vec::new(),
            assumed: Vec::new(),
            paused_until: Time::ZERO,
        }
    }

    /// It stands still until then, and knows nothing of it.
    pub fn pause(&mut self, until: Time) {
        self.paused_until = until;
    }

    /// What it knows of the kind stays as it is until then.
    pub fn stop_watching(&self, server: &mut Server, kind: Kind, until: Time) {
        server.silence(self.watch, kind, until);
    }

    pub fn step(&mut self, around: &mut Surroundings, server: &mut Server) {
        if self.paused_until > around.now {
            return;
        }
        self.look(around, server);
        for binding in std::mem::take(&mut self.bindings) {
            self.go_on(around, server, binding);
        }
        let pods = &self.cluster.objects().pods;
        let waits = |(key, pod): &(&Key, &Pod)| {
            node_name(pod).is_none()
                && !has_ended(pod)
                && gates(pod).is_empty()
                && pod.metadata.deletion_timestamp.is_none()
                && self.not_before.get(*key).is_none_or(|at| *at <= around.now)
                && !self.bindings.iter().any(|binding| binding.pod == **key)
                && !self.assumed.iter().any(|(assumed, ..)| assumed == *key)
        };
        let pods = pods.iter().map(|(key, pod)| (key, pod.as_ref()));
        let mut waiting: Vec<Key> = pods.filter(waits).map(|(key, _)| key.clone()).collect();
        around.rng.shuffle(&mut waiting);
        for key in waiting.into_iter().take(2) {
            self.schedule(around, server, &key);
        }
    }

    fn look(&mut self, around: &mut Surroundings, server: &mut Server) {
        for seen in server.poll(around, self.watch) {
            match seen {
                Seen::Applied(object) => {
                    if let tessera_cluster::Object::Pod(pod) = object.as_ref() {
                        let before = self.cluster.objects().pods.get(&Key::from(&pod.metadata));
                        if before.is_some_and(|before| before.metadata.uid != pod.metadata.uid) {
                            self.not_before.remove(&Key::from(&pod.metadata));
                        }
                    }
                    self.cluster.apply(object.as_ref().clone()).expect("a good object");
                }
                Seen::Deleted(kind, key) => {
                    self.cluster.delete(kind, &key);
                    if kind == Kind::Pod {
                        self.not_before.remove(&key);
                    }
                }
                Seen::Complete(..) => {}
            }
        }
        let (cluster, assumed) = (&mut self.cluster, &mut self.assumed);
        assumed.retain(|(pod, uid, latest)| {
            let objects = cluster.objects();
            let found = objects.pods.get(pod).filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
            // What was written of claims counts until it was seen, even if the pod is gone or was given up.
            let is_seen = *latest <= around.now
                || found.is_some_and(|pod| {
                    let subject = subject::of_pod(objects, pod);
                    node_name(pod).is_some() && subject.claims.iter().all(|wanted| wanted.is_allocated())
                });
            if is_seen {
                cluster.forget(pod);
            }
            !is_seen
        });
    }

    fn schedule(&mut self, around: &mut Surroundings, server: &mut Server, key: &Key) {
        let pod = self.cluster.objects().pods[key].clone();
        let subject = subject::of_pod(self.cluster.objects(), &pod);
        let is_gate = |obstacle: &PodObstacle| matches!(obstacle, PodObstacle::SchedulingGate(_));
        if subject.obstacles.iter().any(|obstacle| !is_gate(obstacle))
            || subject.claims.iter().any(|wanted| wanted.made_from.is_some())
        {
            return;
        }
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
        let mut names: Vec<String> =
            self.cluster.objects().nodes.keys().map(|key| key.name.clone()).collect();
        names.sort_by_cached_key(|name| {
            let held = |device: &tessera_allocator::inventory::DeviceRef<'_>| {
                self.cluster.held().holds_whole(*device)
            };
            let used = self.cluster.inventory().devices_of_node(name).filter(held).count();
            (Some(name) != nominated.as_ref(), used, name.clone())
        });
        for name in names.iter().filter(|name| !dislikes(&pod, name)) {
            let node = &self.cluster.objects().nodes[&Key::cluster(name)];
            let Some(fit) = fit(&self.cluster, &subject, node, &mut self.asker) else { continue };
            let with_devices = fit.iter().map(|(claim, allocation)| {
                let mut claim = claim.clone();
                claim.status.get_or_insert_default().allocation = Some(allocation.clone());
                claim
            });
            self.cluster.assume(key, &pod, name, with_devices.collect()).expect("good quantities");
            let claims = subject.claims.iter().filter_map(|wanted| {
                let claim = Key::from(&wanted.claim.metadata);
                let new = fit.iter().find(|(claim, _)| claim.metadata.uid == wanted.claim.metadata.uid);
                let held = wanted.claim.status.as_ref().and_then(|status| status.allocation.clone());
                let allocation = new.map(|(_, allocation)| allocation.clone()).or(held)?;
                Some((claim, allocation, new.is_some()))
            });
            let binding = Binding {
                pod: key.clone(),
                uid: pod.metadata.uid.clone().unwrap_or_default(),
                node: name.clone(),
                claims: claims.collect(),
                done: 0,
                at: around.now + around.between(0, 500),
            };
            around.note(|| format!("kube-scheduler takes {name} for {}", key.name));
            self.bindings.push(binding);
            return;
        }
        self.refuse(around, server, key, &pod, &subject);
    }

    fn refuse(
        &mut self,
        around: &mut Surroundings,
        server: &mut Server,
        key: &Key,
        pod: &Pod,
        subject: &Subject,
    ) {
        self.not_before.insert(key.clone(), around.now + around.between(2_000, 6_000));
        around.note(|| format!("kube-scheduler finds no node for {}", key.name));
        // What was allocated before and does not help is given back.
        for wanted in subject.claims.iter().filter(|wanted| wanted.is_allocated()) {
            server.update_claim(around, &Key::from(&wanted.claim.metadata), |claim| {
                let status = claim.status.get_or_insert_default();
                if status.reserved_for.iter().flatten().next().is_none() {
                    status.allocation = None;
                }
            });
        }
        let found = server.pod(key).filter(|found| found.metadata.uid == pod.metadata.uid);
        if found.is_some_and(|found| !is_refused(found) && node_name(found).is_none()) {
            server.update_pod(around, key, |pod| {
                pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
                    type_: "PodScheduled".to_owned(),
                    status: "False".to_owned(),
                    reason: Some("Unschedulable".to_owned()),
                    ..PodCondition::default()
                }]);
            });
        }
    }

    /// The next write of a binding.
    fn go_on(&mut self, around: &mut Surroundings, server: &mut Server, mut binding: Binding) {
        if binding.at > around.now {
            self.bindings.push(binding);
            return;
        }
        let count = binding.claims.len();
        let is_done = !around.fault(4)
            && if binding.done < count {
                let (claim, allocation, is_new) = binding.claims[binding.done].clone();
                !is_new || allocate(around, server, &claim, allocation, &binding)
            } else if binding.done < 2 * count {
                let (claim, allocation, _) = &binding.claims[binding.done - count];
                reserve(around, server, claim, allocation, &binding)
            } else {
                bind(around, server, &binding)
            };
        if !is_done {
            around.note(|| format!("kube-scheduler fails to bind {}", binding.pod.name));
            for (claim, ..) in &binding.claims {
                server.update_claim(around, claim, |claim| {
                    let users = &mut claim.status.get_or_insert_default().reserved_for;
                    users.iter_mut().for_each(|users| users.retain(|user| user.uid != binding.uid));
                });
            }
            if binding.done == 0 {
                self.cluster.forget(&binding.pod);
            } else {
                self.assumed.push((binding.pod.clone(), binding.uid, around.now + LATEST));
            }
            self.not_before.insert(binding.pod, around.now + around.between(1_000, 4_000));
        } else if binding.done == 2 * count {
            self.assumed.push((binding.pod, binding.uid, around.now + LATEST));
        } else {
            binding.done += 1;
            binding.at = around.now + around.between(0, 600);
            self.bindings.push(binding);
        }
    }
}

/// Devices and their user, in one write.
fn allocate(
    around: &mut Surroundings,
    server: &mut Server,
    key: &Key,
    allocation: AllocationResult,
    binding: &Binding,
) -> bool {
    let Some(claim) = server.claim(key) else { return false };
    if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()) {
        return false;
    }
    server.update_claim(around, key, |claim| {
        let status = claim.status.get_or_insert_default();
        status.allocation = Some(allocation);
        status.reserved_for.get_or_insert_default().push(user(binding));
    });
    true
}

fn reserve(
    around: &mut Surroundings,
    server: &mut Server,
    key: &Key,
    allocation: &AllocationResult,
    binding: &Binding,
) -> bool {
    let status = server.claim(key).and_then(|claim| claim.status.as_ref());
    // Somebody may have taken the devices back, and given others.
    if status.is_none_or(|status| status.allocation.as_ref() != Some(allocation)) {
        return false;
    }
    server.update_claim(around, key, |claim| {
        let users = claim.status.get_or_insert_default().reserved_for.get_or_insert_default();
        users.retain(|user| user.uid != binding.uid);
        users.push(user(binding));
    });
    true
}

fn user(binding: &Binding) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        name: binding.pod.name.clone(),
        uid: binding.uid.clone(),
        resource: "pods".to_owned(),
        ..ResourceClaimConsumerReference::default()
    }
}

fn bind(around: &mut Surroundings, server: &mut Server, binding: &Binding) -> bool {
    let pod = server.pod(&binding.pod).filter(|pod| pod.metadata.uid.as_ref() == Some(&binding.uid));
    if pod.is_none_or(|pod| node_name(pod).is_some() || pod.metadata.deletion_timestamp.is_some()) {
        return false;
    }
    around.note(|| format!("{} is bound to {}", binding.pod.name, binding.node));
    server.update_pod(around, &binding.pod, |pod| {
        pod.spec.get_or_insert_default().node_name = Some(binding.node.clone());
        let status = pod.status.get_or_insert_default();
        status.nominated_node_name = None;
        status.conditions = None;
    });
    true
}
