//! No gate is lifted before enough pods of the gang have devices, no gang runs in part for long, and no gang that fits waits.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gang::{GROUP_LABEL, GROUP_MIN_LABEL, WHEN_PARTIAL_LABEL};
use tessera_api::managed::NOMINATION_ANNOTATION;
use tessera_cluster::{Key, Object};
use tessera_decide::Time;

use super::end::is_unserved;
use super::reasons::{preemptor, taker};
use super::{idle, queue, teams};
use crate::simulation::FAULTS;
use crate::simulation::api_server::{Server, Surroundings, gates, node_name};
use crate::simulation::oracle::{self, DeviceId, Holdings, Offer, View};
use crate::simulation::replica::Replica;

/// A pod that had its devices this recently still counts when a gate is lifted: the devices may be lost after the decision.
const LATEST: Time = Time::from_secs(40);

/// Longest time a gang may run in part: twice the time a pod has to be bound, plus the time a leader needs to start.
const OLDEST: Time = Time::from_secs(265);

/// The pod's gang with its owner's uid, and the minimum number of pods.
pub fn gang_of(pod: &Pod) -> Option<(String, usize)> {
    let labels = pod.metadata.labels.as_ref()?;
    let owner = pod.metadata.owner_references.iter().flatten().next()?;
    let name = format!("{}/{}", labels.get(GROUP_LABEL)?, owner.uid);
    Some((name, labels.get(GROUP_MIN_LABEL)?.parse().ok()?))
}

pub fn is_member(pod: &Pod) -> bool {
    gang_of(pod).is_some()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_done(pod: &Pod) -> bool {
    phase(pod) == Some("Succeeded")
}

/// Whether the pod no longer counts for its gang, though it may still run.
pub fn is_lost(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || phase(pod) == Some("Failed")
}

/// History of gangs, for components acting on old observations.
#[derive(Debug, Default)]
pub struct Gangs {
    /// When a pod, by gang and uid, was last bound or had all its devices.
    had: BTreeMap<(String, String), Time>,
    /// Uids of evicted pods, by gang.
    evicted: BTreeMap<String, BTreeSet<String>>,
    /// Gangs of which pods give devices back since the last decision.
    asked: BTreeSet<String>,
    /// Since when a gang has been running in part.
    partial: BTreeMap<String, Time>,
    /// Preemptors for whom pods were evicted after the faults had stopped.
    preempting: BTreeSet<String>,
}

/// Whether all claims of the pod have devices.
fn has_devices(server: &Server, pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    let mut names = statuses.into_iter().flatten().filter_map(|status| status.resource_claim_name.clone());
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    statuses.is_some()
        && names.all(|name| {
            let claim = server.claim(&Key::new(namespace.clone(), name));
            claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.allocation.is_some()))
        })
}

/// Records the state of all gangs, and checks for gangs running in part.
pub fn look(around: &mut Surroundings, server: &Server) {
    let mut gangs: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for (_, pod) in server.pods() {
        let Some((gang, _)) = gang_of(pod) else { continue };
        if node_name(pod).is_some() || is_done(pod) || has_devices(server, pod) {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            around.gangs.had.insert((gang.clone(), uid), around.now);
        }
        gangs.entry(gang).or_default().push(pod);
    }
    // The eviction had its effect, even if the preemptor is preempted in turn.
    around.gangs.preempting.retain(|name| {
        !server.pods().any(|(key, pod)| node_name(pod).is_some() && is_called(&key, pod, name))
    });
    around.gangs.partial.retain(|gang, _| gangs.contains_key(gang));
    for (gang, pods) in gangs {
        let min = gang_of(pods[0]).map_or(0, |(_, min)| min);
        let live = || pods.iter().filter(|pod| !is_lost(pod));
        let running = live().filter(|pod| node_name(pod).is_some() && !is_done(pod)).count();
        let done = live().filter(|pod| is_done(pod)).count();
        let waiting = live().filter(|pod| node_name(pod).is_none() && !is_done(pod)).count();
        let is_kept =
            pods[0].metadata.labels.as_ref().is_some_and(|all| all.contains_key(WHEN_PARTIAL_LABEL));
        if running == 0 || running + done >= min || waiting == 0 || is_kept {
            around.gangs.partial.remove(&gang);
            continue;
        }
        let since = *around.gangs.partial.entry(gang.clone()).or_insert(around.now);
        if around.now > since.max(FAULTS) + OLDEST {
            around.violated(|| format!("of gang {gang} {running} of {min} pods run since {since:?}"));
        }
    }
}

/// Checks a gate that is being lifted.
pub fn lifted(around: &mut Surroundings, pod: &Pod) {
    let Some((gang, min)) = gang_of(pod) else { return };
    let all = around.gangs.had.range((gang.clone(), String::new())..);
    let had = all.take_while(|((other, _), _)| *other == gang).filter(|(_, at)| **at + LATEST >= around.now);
    let count = had.count();
    if count < min {
        let name = pod.metadata.name.clone().unwrap_or_default();
        around.violated(|| format!("{name}: lifted, though only {count} of {min} of its gang have devices"));
    }
}

/// Checks the lifting of a gate against the replica's view.
pub fn may_lift(around: &mut Surroundings, replica: &Replica, pod: &Pod) {
    let Some((gang, min)) = gang_of(pod) else { return };
    let pods = replica.view.values().filter_map(|object| match object.as_ref() {
        Object::Pod(pod) => Some(pod),
        _ => None,
    });
    let members = pods.filter(|pod| gang_of(pod).is_some_and(|(other, _)| other == gang) && !is_lost(pod));
    let is_there =
        |pod: &&Pod| node_name(pod).is_some() || gates(pod).is_empty() || replica.has_all_devices(pod);
    let count = members.filter(is_there).count();
    if count < min || !replica.has_all_devices(pod) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        around.violated(|| format!("{name}: to be lifted, though {count} of {min} of its gang have devices"));
    }
}

/// Whether `name` is the pod's or its gang's.
pub fn is_called(key: &Key, pod: &Pod, name: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let group = labels.and_then(|labels| labels.get(GROUP_LABEL)).unwrap_or(&key.name);
    format!("{}/{group}", key.namespace) == name
}

/// A budget allowed less than observed by the replica: earlier evictions made in vain are then no violation.
pub fn kept(around: &mut Surroundings, why: &str) {
    if let Some(name) = preemptor(why).or(taker(why)) {
        around.gangs.preempting.remove(name);
    }
}

/// Checks an eviction: a preemptor needs a higher priority than the victim, and anybody a nomination observed on one of its pods.
pub fn may_evict(around: &mut Surroundings, replica: &Replica, victim: &Pod, why: &str) {
    if let Some((gang, _)) = gang_of(victim) {
        let uid = victim.metadata.uid.clone().unwrap_or_default();
        around.gangs.evicted.entry(gang.clone()).or_default().insert(uid);
        around.gangs.asked.extend(taker(why).map(|_| gang));
    }
    let Some(name) = preemptor(why).or(taker(why)) else { return };
    let of_victim = |pod: &&Pod| queue::who(pod) == queue::who(victim) && !is_lost(pod);
    let for_whom = |pod: &&Pod| is_called(&Key::from(&pod.metadata), pod, name) && !is_lost(pod);
    let lowest = queue::lowest_priority(replica.pods().filter(for_whom));
    let of_others = queue::lowest_priority(replica.pods().filter(of_victim));
    if lowest <= of_others && taker(why).is_none() {
        around.violated(|| format!("evicted for {name} of priority {lowest}: one of {of_others}"));
    }
    let is_nominated = replica.view.iter().any(|((_, key), object)| match object.as_ref() {
        Object::Pod(pod) => {
            let annotations = pod.metadata.annotations.as_ref();
            is_called(key, pod, name)
                && annotations.is_some_and(|all| all.contains_key(NOMINATION_ANNOTATION))
        }
        _ => false,
    });
    if !is_nominated {
        around.violated(|| format!("evicted for {name}, on whose pods nothing is nominated"));
    }
    if around.now > FAULTS + LATEST {
        around.gangs.preempting.insert(name.to_owned());
    }
}

/// Checks after a decision that each gang of which pods give devices back goes on with enough others, or ends.
pub fn are_whole_or_gone(around: &mut Surroundings, replica: &Replica) {
    for gang in std::mem::take(&mut around.gangs.asked) {
        let gone = around.gangs.evicted.get(&gang).cloned().unwrap_or_default();
        let pods = || {
            replica.pods().filter(|pod| gang_of(pod).is_some_and(|(other, _)| other == gang) && !is_lost(pod))
        };
        let min = pods().find_map(gang_of).map_or(0, |(_, min)| min);
        let is_gone = |pod: &&Pod| pod.metadata.uid.as_ref().is_some_and(|uid| gone.contains(uid));
        let left = pods().filter(|pod| node_name(pod).is_some() && !is_done(pod) && !is_gone(pod)).count();
        let done = pods().filter(|pod| is_done(pod)).count();
        if left > 0 && left + done < min {
            around.violated(|| format!("gang {gang} is torn: {left} pods of {min} are left to it"));
        }
    }
}

/// Checks that no gang waits although enough of its pods fit.
pub fn end(around: &mut Surroundings, server: &Server) {
    for name in std::mem::take(&mut around.gangs.preempting) {
        let of_name = || server.pods().filter(|(key, pod)| is_called(key, pod, &name) && !is_lost(pod));
        if of_name().next().is_some() && of_name().all(|(_, pod)| node_name(pod).is_none()) {
            around.violated(|| format!("pods were evicted for {name}, which waits all the same"));
        }
    }
    let mut gangs: BTreeMap<String, (usize, Vec<Key>)> = BTreeMap::new();
    for (key, pod) in server.pods() {
        if let Some((gang, min)) = gang_of(pod)
            && !is_lost(pod)
            && !is_unserved(server, pod)
        {
            gangs.entry(gang).or_insert((min, Vec::new())).1.push(key);
        }
    }
    for (gang, (min, members)) in gangs {
        let mut holdings = Holdings::of(server.view());
        let is_there = |key: &&Key| {
            let pod = server.pod(key).expect("it was just listed");
            node_name(pod).is_some() || is_done(pod) || has_devices(server, pod)
        };
        let there = members.iter().filter(is_there).count();
        let open: Vec<&Key> = members.iter().filter(|key| !is_there(key)).collect();
        let waiting = open.iter().filter_map(|key| server.pod(key));
        let before = holdings.clone();
        let places = waiting
            .filter_map(|pod| Some((pod.metadata.name.clone()?, place(server.view(), &mut holdings, pod)?)));
        let places: Vec<(String, String)> = places.collect();
        let first = members.first().and_then(|key| server.pod(key));
        let more: Vec<DeviceId> = holdings.beyond(&before);
        let is_kept = first.is_some_and(|pod| {
            queue::is_kept_from(around, server, pod) || !teams::may_have(server, pod, &more)
        });
        let mut pods = members.iter().filter_map(|key| server.pod(key));
        let is_held_back = pods.any(|pod| idle::is_held_back(server, pod));
        if !places.is_empty() && there + places.len() >= min && !is_kept && !is_held_back {
            around.violated(|| format!("gang {gang} waits: {there} of {min} are there, and {places:?} fit"));
        }
    }
}

/// Adds the pod to `holdings` on the first node with room, and returns the node with its devices as text.
fn place(view: &View, holdings: &mut Holdings, pod: &Pod) -> Option<String> {
    for node in oracle::nodes(view) {
        let Some(fit) = oracle::fit(view, holdings, pod, node, Offer::Managed) else { continue };
        let devices: Vec<DeviceId> = fit.values().flat_map(oracle::devices_in).collect();
        let names: Vec<&str> = devices.iter().map(|(_, name)| name.as_str()).collect();
        let name = node.metadata.name.clone().unwrap_or_default();
        let place = format!("{name}: {}", names.join(", "));
        holdings.add_devices(devices);
        holdings.add_pod(&name, pod);
        return Some(place);
    }
    None
}
