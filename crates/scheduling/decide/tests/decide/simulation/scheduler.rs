//! A simulated kube-scheduler: its own late view, devices in upstream's order, and three kinds of writes for each pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaimConsumerReference};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Time;

use super::api_server::{Seen, Server, Surroundings, gates, has_ended, is_refused, node_name};
use super::kubernetes::has_label;
use super::oracle::{self, DeviceId, Holdings, Offer, View};

/// By then kube-scheduler has observed its own writes.
const LATEST: Time = Time::from_secs(20);

/// A simulated kube-scheduler.
pub struct Scheduler {
    watch: usize,
    view: View,
    /// Devices and nodes counted as taken before they are observed as such.
    reserved: BTreeMap<Key, Reserved>,
    not_before: BTreeMap<Key, Time>,
    bindings: Vec<Binding>,
    /// Pods bound or given up, but not observed as such yet.
    assumed: Vec<(Key, String, Time)>,
    /// Paused until then.
    paused_until: Time,
}

/// A pod's reserved node and devices.
struct Reserved {
    pod: Pod,
    node: String,
    devices: Vec<DeviceId>,
}

/// A pod with a node, but not bound yet.
struct Binding {
    pod: Key,
    uid: String,
    node: String,
    /// Claims with their allocations, and whether each allocation is new.
    claims: Vec<(Key, AllocationResult, bool)>,
    /// Writes done: an allocation for each claim without one, then its consumer, then the binding.
    done: usize,
    at: Time,
}

/// Whether kube-scheduler refuses the node for reasons of its own: a stand-in for pod affinity, spreading and the rest.
pub fn dislikes(pod: &Pod, node: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("dislikes")).is_some_and(|disliked| disliked == node)
}

/// Label of pods never bound, for a reason unrelated to the node.
pub const FAILS_TO_BIND: &str = "fails-to-bind";

/// Whether the pod is for the default scheduler.
pub fn is_ours(pod: &Pod) -> bool {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    name.is_none_or(|name| name == "default-scheduler")
}

/// Whether a pod of its PodGroup has a gate: since Kubernetes 1.37 one gate holds back all of them.
fn is_held_back(view: &View, pod: &Pod) -> bool {
    let group = |pod: &Pod| pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.clone();
    let Some(name) = group(pod) else { return false };
    oracle::pods(view).any(|other| group(other).as_ref() == Some(&name) && !gates(other).is_empty())
}

impl Scheduler {
    pub fn new(around: &mut Surroundings, server: &mut Server) -> Self {
        Scheduler {
            watch: server.watch(around),
            view: View::new(),
            reserved: BTreeMap::new(),
            not_before: BTreeMap::new(),
            bindings: Vec::new(),
            assumed: Vec::new(),
            paused_until: Time::ZERO,
        }
    }

    /// Pauses until then, without noticing.
    pub fn pause(&mut self, until: Time) {
        self.paused_until = until;
    }

    /// Freezes the view of the kind until then.
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
        let waits = |(key, pod): &(Key, &Pod)| {
            node_name(pod).is_none()
                && !has_ended(pod)
                && gates(pod).is_empty()
                && pod.metadata.deletion_timestamp.is_none()
                && is_ours(pod)
                && !is_held_back(&self.view, pod)
                && self.not_before.get(key).is_none_or(|at| *at <= around.now)
                && !self.bindings.iter().any(|binding| binding.pod == *key)
                && !self.assumed.iter().any(|(assumed, ..)| assumed == key)
        };
        let pods = oracle::pods(&self.view).map(|pod| (Key::from(&pod.metadata), pod));
        let mut waiting: Vec<Key> = pods.filter(waits).map(|(key, _)| key).collect();
        around.rng.shuffle(&mut waiting);
        for key in waiting.into_iter().take(2) {
            self.schedule(around, server, &key);
        }
    }

    fn look(&mut self, around: &mut Surroundings, server: &mut Server) {
        for seen in server.poll(around, self.watch) {
            match seen {
                Seen::Applied(object) => {
                    let name = (object.kind(), Key::from(object.metadata()));
                    if let Object::Pod(pod) = object.as_ref() {
                        let before = oracle::pod(&self.view, &name.1);
                        if before.is_some_and(|before| before.metadata.uid != pod.metadata.uid) {
                            self.not_before.remove(&name.1);
                        }
                    }
                    self.view.insert(name, object);
                }
                Seen::Deleted(kind, key) => {
                    if kind == Kind::Pod {
                        self.not_before.remove(&key);
                    }
                    self.view.remove(&(kind, key));
                }
                Seen::Complete(..) => {}
            }
        }
        let (view, reserved) = (&self.view, &mut self.reserved);
        self.assumed.retain(|(pod, uid, latest)| {
            let found = oracle::pod(view, pod).filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
            let has_devices = |pod: &Pod| {
                let asked = oracle::asked(view, pod);
                asked.is_some_and(|asked| asked.iter().all(|asked| asked.allocation().is_some()))
            };
            // Claim writes count until observed, even if the pod is gone or was given up.
            let is_seen = *latest <= around.now
                || found.is_some_and(|pod| node_name(pod).is_some() && has_devices(pod));
            if is_seen {
                reserved.remove(pod);
            }
            !is_seen
        });
    }

    /// Observed holdings and own reservations.
    fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::of(&self.view);
        for (key, reserved) in &self.reserved {
            holdings.add_devices(reserved.devices.iter().cloned());
            if oracle::pod(&self.view, key).is_none_or(|pod| node_name(pod).is_none()) {
                holdings.add_pod(&reserved.node, &reserved.pod);
            }
        }
        holdings
    }

    fn schedule(&mut self, around: &mut Surroundings, server: &mut Server, key: &Key) {
        let Some(pod) = oracle::pod(&self.view, key).cloned() else { return };
        let asked = oracle::asked(&self.view, &pod).unwrap_or_default();
        let claims: Vec<Key> = asked.iter().filter_map(|asked| asked.key()).collect();
        // A pod without all of its claims is skipped.
        if oracle::asked(&self.view, &pod).is_none() || claims.len() < asked.len() {
            return;
        }
        let held: Vec<Option<AllocationResult>> =
            asked.iter().map(|asked| asked.allocation().cloned()).collect();
        let holdings = self.holdings();
        let names = self.in_order(&holdings, &pod);
        for name in names.iter().filter(|name| !dislikes(&pod, name)) {
            let Some(node) = oracle::node(&self.view, name) else { continue };
            let Some(fit) = oracle::fit(&self.view, &holdings, &pod, node, Offer::Native) else { continue };
            let devices = fit.values().flat_map(oracle::devices_in).collect();
            let reserved = Reserved { pod: pod.clone(), node: name.clone(), devices };
            let claims = claims.into_iter().zip(held).enumerate().filter_map(|(number, (claim, held))| {
                let new = fit.get(&number);
                Some((claim, new.cloned().or(held)?, new.is_some()))
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
            self.reserved.insert(key.clone(), reserved);
            self.bindings.push(binding);
            return;
        }
        let allocated = claims.into_iter().zip(held).filter_map(|(claim, held)| held.map(|_| claim));
        self.refuse(around, server, key, &pod, allocated.collect());
    }

    /// Nodes to try: the nominated one, then by fewest devices in use.
    fn in_order(&self, holdings: &Holdings, pod: &Pod) -> Vec<String> {
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        for node in oracle::nodes(&self.view) {
            used.insert(node.metadata.name.clone().unwrap_or_default(), 0);
        }
        for (node, device) in oracle::published(&self.view) {
            if let Some(used) = used.get_mut(node).filter(|_| holdings.contains(&device)) {
                *used += 1;
            }
        }
        let mut names: Vec<(String, usize)> = used.into_iter().collect();
        names.sort_by_key(|(name, used)| (Some(name) != nominated.as_ref(), *used));
        names.into_iter().map(|(name, _)| name).collect()
    }

    fn refuse(
        &mut self,
        around: &mut Surroundings,
        server: &mut Server,
        key: &Key,
        pod: &Pod,
        allocated: Vec<Key>,
    ) {
        self.not_before.insert(key.clone(), around.now + around.between(2_000, 6_000));
        around.note(|| format!("kube-scheduler finds no node for {}", key.name));
        // Earlier allocations without reservation are freed, as they do not help.
        for claim in allocated {
            server.update_claim(around, &claim, |claim| {
                let status = claim.status.get_or_insert_default();
                if status.reserved_for.iter().flatten().next().is_none() {
                    status.allocation = None;
                }
            });
        }
        tell(around, server, key, pod.metadata.uid.as_deref(), "Unschedulable");
    }

    /// Does the next write of a binding.
    fn go_on(&mut self, around: &mut Surroundings, server: &mut Server, mut binding: Binding) {
        if binding.at > around.now {
            self.bindings.push(binding);
            return;
        }
        let count = binding.claims.len();
        let fails = oracle::pod(&self.view, &binding.pod).is_some_and(|pod| has_label(pod, FAILS_TO_BIND));
        let is_done = !around.fault(4)
            && if binding.done < count {
                let (claim, allocation, is_new) = binding.claims[binding.done].clone();
                !is_new || allocate(around, server, &claim, allocation, &binding)
            } else if binding.done < 2 * count {
                let (claim, allocation, _) = &binding.claims[binding.done - count];
                reserve(around, server, claim, allocation, &binding)
            } else {
                !fails && bind(around, server, &binding)
            };
        if !is_done {
            around.note(|| format!("kube-scheduler fails to bind {}", binding.pod.name));
            if fails {
                tell(around, server, &binding.pod, Some(&binding.uid), "SchedulerError");
            }
            for (claim, ..) in &binding.claims {
                server.update_claim(around, claim, |claim| {
                    let users = &mut claim.status.get_or_insert_default().reserved_for;
                    users.iter_mut().for_each(|users| users.retain(|user| user.uid != binding.uid));
                });
            }
            if binding.done == 0 {
                self.reserved.remove(&binding.pod);
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

/// Writes on the pod why no node was found, unless already written.
fn tell(around: &mut Surroundings, server: &mut Server, key: &Key, uid: Option<&str>, reason: &str) {
    let found = server.pod(key).filter(|found| found.metadata.uid.as_deref() == uid);
    if found.is_some_and(|found| !is_refused(found) && node_name(found).is_none()) {
        server.update_pod(around, key, |pod| {
            pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some(reason.to_owned()),
                ..PodCondition::default()
            }]);
        });
    }
}

/// Allocates devices and adds their consumer, in one write.
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
    // Other devices may have been allocated in between.
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
