//! Pods waiting for devices only kube-scheduler allocates: it found no node for them, and no other component will.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::DeviceClass;
use tessera_allocator::claim::{Ask, Claim, DeviceRequest};
use tessera_cluster::subject::{self, Wanted};
use tessera_cluster::{ClaimExt, Key, Objects, PodExt, outcome};
use tessera_placement::demand;

use crate::ledger::Ledger;
use crate::waits::Waits;
use crate::world::World;

/// Characters shown of kube-scheduler's message. It counts nodes by reason, so a longer one is from someone else.
const LONGEST_REASON: usize = 1024;

/// Pods without a node according to kube-scheduler.
#[derive(Debug, Default)]
pub(crate) struct Unplaced {
    /// Pools with matching devices for waiting pods, by the requested devices in short, as of the last summary.
    pub pools_by_shape: BTreeMap<String, BTreeSet<String>>,
    /// Short description of each pod's demand for our devices; `None` if there is none or it is not examined yet.
    pods: BTreeMap<Key, Option<String>>,
    /// Pods to re-examine.
    changed: BTreeSet<Key>,
    /// Namespaces to re-examine completely.
    changed_namespaces: BTreeSet<String>,
    /// Whether to re-examine all pods.
    changed_all: bool,
}

/// Whether kube-scheduler tried a pod possibly asking for devices, and found no node. It does not try gated pods.
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

/// Demand of the pod's unallocated claims, if any part is for our driver.
fn asks_for(objects: &Objects, pod: &Pod, driver: &str) -> Option<String> {
    let subject = subject::of_pod(objects, pod);
    let open: Vec<&Wanted> = subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
    let claims = outcome::converted(&open).ok()?;
    claims.iter().any(|claim| is_ours(objects, claim, driver)).then(|| demand::text(&claims))
}

/// Whether the claim or one of its classes names the driver, as any deliberate selection of its devices does.
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

/// kube-scheduler's reason for not placing the pod.
pub(crate) fn reason(pod: &Pod) -> String {
    let message: String = pod.scheduler_message().unwrap_or_default().chars().take(LONGEST_REASON).collect();
    format!("kube-scheduler: {message}")
}

/// Handles an observed pod.
pub(crate) fn track_unplaced(unplaced: &mut Unplaced, key: &Key, pod: &Pod) {
    if is_unplaced(pod) {
        unplaced.pods.entry(key.clone()).or_default();
        unplaced.changed.insert(key.clone());
    } else {
        forget_unplaced(unplaced, key);
    }
}

/// A pod is deleted or bound.
pub(crate) fn forget_unplaced(unplaced: &mut Unplaced, key: &Key) {
    unplaced.pods.remove(key);
    unplaced.changed.remove(key);
}

/// A claim was created or changed, or is about to be deleted.
pub(crate) fn mark_claim_of_unplaced(world: &World, unplaced: &mut Unplaced, claim: &Key) {
    match world.cluster.objects().claims.get(claim).and_then(|claim| claim.owning_pod()) {
        // With thousands of pods and a claim each, only the owner is examined.
        Some(pod) => {
            let pod = claim.with_name(pod);
            if unplaced.pods.contains_key(&pod) {
                unplaced.changed.insert(pod);
            }
        }
        None => mark_template_of_unplaced(unplaced, &claim.namespace),
    }
}

/// A template of this namespace was created or changed.
pub(crate) fn mark_template_of_unplaced(unplaced: &mut Unplaced, namespace: &str) {
    unplaced.changed_namespaces.insert(namespace.to_owned());
}

/// A class changed.
pub(crate) fn mark_class_of_unplaced(unplaced: &mut Unplaced) {
    unplaced.changed_all = true;
}

/// Re-examines changed pods.
pub(crate) fn look_at_unplaced(world: &World, unplaced: &mut Unplaced) {
    let Unplaced { pods, changed, changed_namespaces, changed_all, .. } = unplaced;
    let (all, namespaces) = (std::mem::take(changed_all), std::mem::take(changed_namespaces));
    let too = pods.keys().filter(|pod| all || namespaces.contains(&pod.namespace));
    changed.extend(too.cloned());
    for key in std::mem::take(changed) {
        let objects = world.cluster.objects();
        let asks = objects.pods.get(&key).and_then(|pod| asks_for(objects, pod, &world.driver));
        unplaced.pods.insert(key, asks);
    }
}

/// Pods waiting for kube-scheduler to allocate our devices, as of the last look, each with a short description of its demand.
pub(crate) fn unplaced<'s>(
    world: &'s World,
    ledger: &'s Ledger,
    waits: &'s Waits,
    unplaced: &'s Unplaced,
) -> impl Iterator<Item = (&'s Key, &'s str)> {
    let ours = unplaced.pods.iter().filter_map(|(key, asks)| Some((key, asks.as_deref()?)));
    ours.filter(|(key, _)| !is_waiting(world, waits, key) && ledger.pods.proposal(key).is_none())
}

/// Whether the pod has our gate, or asks for managed cards but has none.
pub(crate) fn is_waiting(world: &World, waits: &Waits, key: &Key) -> bool {
    let is_gated = || world.cluster.objects().pods.get(key).is_some_and(|pod| pod.is_gated());
    waits.is_managed(key) || waits.contains(key) && is_gated()
}
