//! Idle pods: only those that use no devices and do not keep them make room, as whole gangs, after they were told, for a pod that waits;
//! and the pods made in their place take nothing from it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::device_status::IDLE;
use tessera_api::gpu_pool::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, KEEP, RESUME};
use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
use tessera_cluster::Key;
use tessera_decide::{PodReference, Time};

use super::gangs::{gang_of, is_lost};
use super::{queue, reasons, reference};
use crate::simulation::api_server::{Server, Surroundings, has_ended, node_name};
use crate::simulation::idle::GRACE;
use crate::simulation::oracle;
use crate::simulation::replica::Replica;

/// An idle pod that was evicted.
#[derive(Debug)]
pub struct Evicted {
    pod: PodReference,
    owner: Option<String>,
    at: Time,
}

/// What was done about idle pods.
#[derive(Debug, Default)]
pub struct IdlePods {
    /// When pods were first told of an eviction.
    told: BTreeMap<PodReference, Time>,
    evicted: Vec<Evicted>,
}

fn annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Who makes pods in place of this one.
fn owner_of(pod: &Pod) -> Option<String> {
    let owner = pod.metadata.owner_references.iter().flatten().next()?;
    Some(format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), owner.uid))
}

/// Whether the plugin says of all devices of the pod's claims that they are not used.
fn is_idle(replica: &Replica, pod: &Pod) -> bool {
    let asked = oracle::asked(&replica.view, pod).unwrap_or_default();
    let mut claims = asked.iter().filter_map(|asked| replica.claim_of(&asked.key()?));
    claims.all(|claim| {
        let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
        let conditions = devices.flat_map(|device| device.conditions.iter().flatten());
        let told: Vec<bool> =
            conditions.filter(|one| one.type_ == IDLE).map(|one| one.status == "True").collect();
        !told.is_empty() && told.iter().all(|is_idle| *is_idle)
    })
}

/// The pod is told of its eviction.
pub fn told(around: &mut Surroundings, pod: &PodReference) {
    around.idle_pods.told.entry(pod.clone()).or_insert(around.now);
}

/// Checks an eviction.
pub fn may_evict(around: &mut Surroundings, replica: &Replica, victim: &Pod, why: &str) {
    let Some(asker) = reasons::asker(why) else { return };
    let name = Key::from(&victim.metadata).name;
    let is_of_gang = |pod: &&Pod| queue::who(pod) == queue::who(victim);
    let gang: Vec<&Pod> = match gang_of(victim) {
        Some(_) => replica.pods().filter(is_of_gang).collect(),
        None => vec![victim],
    };
    for pod in gang.into_iter().filter(|pod| node_name(pod).is_some() && !is_lost(pod) && !has_ended(pod)) {
        let other = Key::from(&pod.metadata).name;
        if !is_idle(replica, pod) {
            let what = if other == name { "computes" } else { "is of a gang that computes" };
            around.violated(|| format!("{name} is evicted as idle and {what}: {other}"));
        }
        if annotation(pod, IDLE_ANNOTATION) == Some(KEEP) {
            around.violated(|| format!("{name} is evicted as idle, and {other} wants to keep its devices"));
        }
    }
    let told = around.idle_pods.told.get(&reference(victim)).copied();
    if told.is_none_or(|told| told + GRACE > around.now) {
        around.violated(|| format!("{name} is evicted as idle, and was told {told:?}"));
    }
    let is_asker =
        |pod: &&Pod| super::gangs::is_called(&Key::from(&pod.metadata), pod, asker) && !is_lost(pod);
    if !replica.pods().filter(is_asker).any(|pod| node_name(pod).is_none() && nomination(pod).is_some()) {
        around.violated(|| format!("{name} is evicted for {asker}, which does not wait"));
    }
    let at = around.now;
    around.idle_pods.evicted.push(Evicted { pod: reference(victim), owner: owner_of(victim), at });
}

fn nomination(pod: &Pod) -> Option<Nomination> {
    Nomination::decode(annotation(pod, NOMINATION_ANNOTATION)?)
}

/// Checks that the pod, which gets devices, takes none back from one that waits for them.
pub fn may_allocate(around: &mut Surroundings, replica: &Replica, pod: &Pod) {
    if annotation(pod, IDLE_ANNOTATION) == Some(RESUME) || gang_of(pod).is_some() {
        return;
    }
    let name = Key::from(&pod.metadata).name;
    let asker = |uid: &str| {
        let waits = |other: &&Pod| {
            let names = |text: &String| text.ends_with(&format!("/{uid}"));
            node_name(other).is_none()
                && !has_ended(other)
                && !is_lost(other)
                && !replica.has_all_devices(other)
                && nomination(other).is_some_and(|found| found.idle.keys().any(names))
        };
        replica.pods().find(waits).map(|pod| Key::from(&pod.metadata).name)
    };
    if let Some(uid) = annotation(pod, IDLE_EVICTED_ANNOTATION) {
        if let Some(asker) = asker(uid) {
            around.violated(|| format!("{name} takes its card back from {asker}"));
        }
        return;
    }
    let owner = owner_of(pod);
    let is_alike = |other: &&Pod| {
        owner_of(other) == owner
            && node_name(other).is_none()
            && !has_ended(other)
            && !replica.has_all_devices(other)
    };
    let is_succeeded =
        |uid: &str| replica.pods().any(|pod| annotation(pod, IDLE_EVICTED_ANNOTATION) == Some(uid));
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let of_owner = around.idle_pods.evicted.iter().filter(|evicted| {
        let is_gone = replica.pods().all(|pod| reference(pod) != evicted.pod);
        owner.is_some()
            && evicted.owner == owner
            && is_gone
            && !is_succeeded(&evicted.pod.uid)
            && u64::try_from(created(pod)).is_ok_and(|created| Time::from_secs(created) > evicted.at)
    });
    let askers: Vec<String> = of_owner.filter_map(|evicted| asker(&evicted.pod.uid)).collect();
    let others = replica.pods().filter(is_alike).filter(|other| reference(other) != reference(pod)).count();
    if askers.len() > others {
        around.violated(|| {
            format!("{name}, made in place of an idle pod, takes its card back from {askers:?}")
        });
    }
}

/// Whether the pod leaves free devices to others that wait, at the end of a run.
pub fn is_held_back(server: &Server, pod: &Pod) -> bool {
    let is_held = |pod: &Pod| {
        annotation(pod, IDLE_EVICTED_ANNOTATION).is_some() && annotation(pod, IDLE_ANNOTATION) != Some(RESUME)
    };
    let waits = |pod: &Pod| node_name(pod).is_none() && !has_ended(pod) && !is_held(pod);
    is_held(pod) && server.pods().any(|(_, pod)| waits(pod))
}
