//! Pods that wait for devices which kube-scheduler allocates alone: it found no node for them, and nobody else will.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::DeviceClass;
use tessera_allocator::claim::{Ask, Claim, DeviceRequest};
use tessera_cluster::subject::{self, Wanted};
use tessera_cluster::{ClaimExt, Key, Objects, PodExt, outcome};
use tessera_placement::demand;

use super::Decider;

/// Characters of kube-scheduler's reason that are shown: it counts nodes by reason, so that more is of somebody else.
const LONGEST_REASON: usize = 1024;

/// Pods that kube-scheduler found no node for.
#[derive(Debug, Default)]
pub(crate) struct Unplaced {
    /// What each asks for of our devices, in short; `None` where that is nothing, or was not looked at yet.
    pods: BTreeMap<Key, Option<String>>,
    /// Those to look at.
    changed: BTreeSet<Key>,
    /// Namespaces of which all are to be looked at.
    changed_namespaces: BTreeSet<String>,
    /// All are to be looked at.
    changed_all: bool,
}

impl Decider {
    /// A pod was seen.
    pub(super) fn see_unplaced(&mut self, key: &Key, pod: &Pod) {
        if is_unplaced(pod) {
            self.unplaced.pods.entry(key.clone()).or_default();
            self.unplaced.changed.insert(key.clone());
        } else {
            self.forget_unplaced(key);
        }
    }

    /// A pod is gone, or has a node.
    pub(super) fn forget_unplaced(&mut self, key: &Key) {
        self.unplaced.pods.remove(key);
        self.unplaced.changed.remove(key);
    }

    /// A claim is there, has changed, or will be gone.
    pub(super) fn see_claim_of_unplaced(&mut self, claim: &Key) {
        match self.cluster.objects().claims.get(claim).and_then(|claim| claim.owning_pod()) {
            // Of thousands of pods with a claim each, one is looked at.
            Some(pod) => {
                let pod = claim.with_name(pod);
                if self.unplaced.pods.contains_key(&pod) {
                    self.unplaced.changed.insert(pod);
                }
            }
            None => self.see_template_of_unplaced(&claim.namespace),
        }
    }

    /// A template of this namespace is there, or has changed.
    pub(super) fn see_template_of_unplaced(&mut self, namespace: &str) {
        self.unplaced.changed_namespaces.insert(namespace.to_owned());
    }

    /// A class changed.
    pub(super) fn see_class_of_unplaced(&mut self) {
        self.unplaced.changed_all = true;
    }

    /// Looks at those that changed.
    pub(super) fn look_at_unplaced(&mut self) {
        let Unplaced { pods, changed, changed_namespaces, changed_all } = &mut self.unplaced;
        let (all, namespaces) = (std::mem::take(changed_all), std::mem::take(changed_namespaces));
        let too = pods.keys().filter(|pod| all || namespaces.contains(&pod.namespace));
        changed.extend(too.cloned());
        for key in std::mem::take(changed) {
            let objects = self.cluster.objects();
            let asks = objects.pods.get(&key).and_then(|pod| asks_for(objects, pod, &self.driver));
            self.unplaced.pods.insert(key, asks);
        }
    }

    /// Pods that wait for kube-scheduler to allocate devices of ours, as of the last look: each with what it asks for, in short.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = (&Key, &str)> {
        let ours = self.unplaced.pods.iter().filter_map(|(key, asks)| Some((key, asks.as_deref()?)));
        ours.filter(|(key, _)| !self.is_waiting(key) && self.ledger.pods.proposal(key).is_none())
    }
}

/// Whether kube-scheduler tried the pod, which may ask for devices, and found no node. Behind a gate it does not try.
fn is_unplaced(pod: &Pod) -> bool {
    pod.node_name().is_none() && !pod.has_ended() && pod.is_refused() && may_ask_for_devices(pod)
}

fn may_ask_for_devices(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let has_extended = |container: &Container| {
        let resources = container.resources.as_ref();
        let all = resources.into_iter().flat_map(|all| [&all.limits, &all.requests]).flatten();
        all.flat_map(|all| all.keys()).any(|name| name.contains('/'))
    };
    spec.resource_claims.iter().flatten().next().is_some()
        || spec.init_containers.iter().flatten().chain(&spec.containers).any(has_extended)
}

/// What the pod asks for in claims without devices, if any of it is ours.
fn asks_for(objects: &Objects, pod: &Pod, driver: &str) -> Option<String> {
    let subject = subject::of_pod(objects, pod);
    let open: Vec<&Wanted> = subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
    let claims = outcome::converted(&open).ok()?;
    claims.iter().any(|claim| is_ours(objects, claim, driver)).then(|| demand::text(&claims))
}

/// Whether the claim or one of its classes names the driver, as all do that select its devices by more than chance.
fn is_ours(objects: &Objects, claim: &Claim, driver: &str) -> bool {
    let is_ours = |ask: &DeviceRequest| {
        let class = objects.classes.get(&Key::cluster(&ask.class));
        ask.selectors.iter().flatten().any(|selector| selector.contains(driver))
            || class.is_some_and(|class| names(class, driver))
    };
    claim.requests.iter().any(|request| match &request.ask {
        Ask::Exactly(ask) => is_ours(ask),
        Ask::FirstAvailable(alternatives) => alternatives.iter().any(is_ours),
        Ask::Unknown => false,
    })
}

fn names(class: &DeviceClass, driver: &str) -> bool {
    let selectors = class.spec.iter().flat_map(|spec| spec.selectors.iter().flatten());
    selectors.filter_map(|selector| selector.cel.as_ref()).any(|cel| cel.expression.contains(driver))
}

/// Why kube-scheduler says that the pod has no node.
pub(super) fn reason(pod: &Pod) -> String {
    let message: String = pod.scheduler_message().unwrap_or_default().chars().take(LONGEST_REASON).collect();
    format!("kube-scheduler: {message}")
}
