//! Queue order: no pod passes the head of a strict queue, nodes reserved for a gang stay reserved, and pods protected by a
//! disruption budget make no room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_api::gpu_pool::Allocation;
use tessera_api::managed::Nomination;
use tessera_api::{NodeReport, node_report};
use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Time;

use super::gangs::{gang_of, is_lost};
use super::names_a_claim;
use super::reasons::Standing;
use crate::objects::DRIVER;
use crate::simulation::api_server::{Server, Surroundings, has_ended, node_name};
use crate::simulation::kubernetes::{self, ends};
use crate::simulation::oracle::devices_of;
use crate::simulation::replica::Replica;
use crate::simulation::users::cards_asked;

/// How long the reason reported for a pod may be out of date after an intent for the pod.
const OUT_OF_DATE: Time = Time::from_secs(60);

/// Pods ending within this time may use reserved nodes nobody knows the end of.
const BACKFILL: Time = Time::from_secs(600);

type Order = (Reverse<i32>, Option<Timestamp>, Key);

/// A pod or gang waiting in a replica's view.
struct Waiting<'r> {
    who: String,
    order: Order,
    pods: Vec<&'r Pod>,
    why: &'r str,
}

/// The pod's gang, or the pod itself.
pub fn who(pod: &Pod) -> String {
    gang_of(pod).map_or_else(|| Key::from(&pod.metadata).name, |(gang, _)| gang)
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// The lowest priority of these pods: a member of higher priority does not raise the others.
pub fn lowest_priority<'p>(pods: impl Iterator<Item = &'p Pod>) -> i32 {
    pods.map(priority).min().unwrap_or_default()
}

/// The order of a pod, or of all pods of a gang: once some run, by the creation of the oldest of these, before by that of the last pod
/// it needed.
fn order(pods: &[&Pod]) -> Order {
    let created = |pods: Vec<&&Pod>| {
        let mut all: Vec<Timestamp> =
            pods.into_iter().filter_map(|pod| pod.metadata.creation_timestamp.clone()).collect();
        all.sort();
        all
    };
    let counts = |pod: &&&Pod| !is_lost(pod);
    let running = created(pods.iter().filter(counts).filter(|pod| node_name(pod).is_some()).collect());
    let waiting = created(pods.iter().filter(counts).collect());
    let min = pods.first().and_then(|pod| gang_of(pod)).map_or(1, |(_, min)| min);
    let last = waiting.get(min.max(1) - 1).or(waiting.last()).cloned();
    let last = last.or_else(|| created(pods.iter().collect()).pop());
    let key = pods.iter().map(|pod| Key::from(&pod.metadata)).max().unwrap_or_default();
    (Reverse(lowest_priority(pods.iter().copied())), running.first().cloned().or(last), key)
}

fn grouped<'p>(pods: impl Iterator<Item = &'p Pod>) -> BTreeMap<String, Vec<&'p Pod>> {
    let mut groups: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        groups.entry(who(pod)).or_default().push(pod);
    }
    groups
}

/// Pods and gangs that keep their place, according to the loop, and had no intent recently.
fn waiting<'r>(around: &Surroundings, replica: &'r Replica) -> Vec<Waiting<'r>> {
    let why: BTreeMap<&Key, &str> = replica.decider.waiting().collect();
    let is_idle = |pod: &&Pod| {
        let acted = replica.acted.get(&Key::from(&pod.metadata));
        node_name(pod).is_none()
            && !has_ended(pod)
            && !replica.has_all_devices(pod)
            && acted.is_none_or(|at| *at + OUT_OF_DATE < around.now)
    };
    let stands = |(who, all): (String, Vec<&'r Pod>)| {
        let pods: Vec<&Pod> = all.iter().copied().filter(|pod| !is_lost(pod)).collect();
        let why = why.get(&Key::from(&pods.first()?.metadata))?;
        let asks = cards_asked(pods[0]) != Some(0);
        let stands = asks && pods.iter().all(is_idle) && Standing::of(why) != Standing::None;
        stands.then(|| Waiting { who, order: order(&all), pods, why })
    };
    grouped(replica.pods()).into_iter().filter_map(stands).collect()
}

/// Checks that the pod may get devices of the node, given the other waiting pods in the replica's view.
pub fn may_allocate(around: &mut Surroundings, replica: &Replica, pod: &Pod, node: &str) {
    let placement = around.placement;
    if !placement.is_strict && placement.reserve_after.is_none() {
        return;
    }
    let mine = who(pod);
    let own = order(&replica.pods().filter(|other| who(other) == mine).collect::<Vec<_>>());
    let mut others = waiting(around, replica);
    others.retain(|other| other.who != mine);
    if placement.is_strict
        && let Some(head) = others.iter().find(|other| other.order < own)
    {
        around.violated(|| format!("{mine} passes {} in a strict queue: {}", head.who, head.why));
    }
    let Some(after) = placement.reserve_after else { return };
    others.retain(|other| {
        let complete = other.order.1.as_ref().and_then(|time| u64::try_from(time.0.as_second()).ok());
        let is_due = complete.is_some_and(|second| Time::from_secs(second) + after < around.now);
        let is_whole = cards_asked(other.pods[0]).is_some();
        is_due && is_whole && Standing::of(other.why) == Standing::GangDoesNotFit
    });
    let Some(gang) = others.into_iter().min_by_key(|other| other.order.clone()) else { return };
    if own < gang.order || !needs(replica, &gang, node) {
        return;
    }
    let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let end = deadline.and_then(|seconds| Some(around.now + Time::from_secs(u64::try_from(seconds).ok()?)));
    // Latest time at which all of the gang's nodes are expected to be free.
    let latest = replica.pods().filter(|pod| node_name(pod).is_some()).filter_map(ends).max();
    let latest = latest.unwrap_or_default().max(around.now + BACKFILL);
    if gang_of(pod).is_some() || end.is_none_or(|end| end > latest) {
        around.violated(|| {
            format!("{mine} gets devices of {node} until {end:?}, which {} needs: {}", gang.who, gang.why)
        });
    }
}

/// Whether the gang would not fit without the node if all nodes were empty.
fn needs(replica: &Replica, gang: &Waiting<'_>, node: &str) -> bool {
    let cards = managed_cards(replica);
    let asked = cards_asked(gang.pods[0]).unwrap_or(0).max(1);
    let of = |(_, count): (&String, &usize)| count / asked;
    let others: usize = cards.iter().filter(|(name, _)| *name != node).map(of).sum();
    cards.get(node).is_some_and(|count| count / asked > 0) && others < gang.pods.len()
}

/// The node report in the slice's annotation.
fn report(slice: &ResourceSlice) -> Option<NodeReport> {
    let text = slice.metadata.annotations.as_ref()?.get(node_report::ANNOTATION)?;
    serde_json::from_str(text).ok()
}

fn managed(report: &NodeReport) -> usize {
    report.cards.values().filter(|card| card.allocation == Allocation::Managed).count()
}

/// Number of managed cards by schedulable node.
fn managed_cards(replica: &Replica) -> BTreeMap<String, usize> {
    let mut cards = BTreeMap::new();
    for object in replica.of_kind(Kind::ResourceSlice) {
        let Object::ResourceSlice(slice) = object else { continue };
        let Some(report) = report(slice) else { continue };
        let name = slice.spec.node_name.clone().unwrap_or_default();
        let node = replica.view.get(&(Kind::Node, Key::cluster(name.clone()))).map(AsRef::as_ref);
        let Some(Object::Node(node)) = node else { continue };
        if node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true)) {
            cards.insert(name, managed(&report));
        }
    }
    cards
}

/// Checks that no nominated device belongs to a pod protected by a disruption budget.
pub fn may_nominate(around: &mut Surroundings, replica: &Replica, nomination: &Nomination) {
    let overlaps = |device: &str| {
        let part = |longer: &str, whole: &str| longer.starts_with(&format!("{whole}-mig"));
        let mut wanted = nomination.devices.iter();
        wanted.any(|wanted| wanted == device || part(wanted, device) || part(device, wanted))
    };
    for object in replica.of_kind(Kind::ResourceClaim) {
        let Object::ResourceClaim(claim) = object else { continue };
        let Some(status) = &claim.status else { continue };
        let pool = format!("{DRIVER}/{}", nomination.node);
        if !devices_of(claim).any(|(other, device)| other == pool && overlaps(&device)) {
            continue;
        }
        for user in status.reserved_for.iter().flatten() {
            let pod = replica.pod(&Key::from(&claim.metadata).with_name(&user.name));
            let kept = pod.filter(|pod| !has_ended(pod) && pod.metadata.deletion_timestamp.is_none());
            if kept.is_some_and(|pod| is_kept(replica, pod)) {
                around.violated(|| format!("{nomination:?} is what {} has, whom a budget keeps", user.name));
            }
        }
    }
}

fn is_kept(replica: &Replica, pod: &Pod) -> bool {
    kubernetes::is_kept(pod)
        && replica.of_kind(Kind::DisruptionBudget).any(|object| {
            matches!(object, Object::DisruptionBudget(budget) if budget.status.disruptions_allowed == 0)
        })
}

/// The largest number of managed cards on a node.
fn most_cards(server: &Server) -> usize {
    let nodes = ["a", "b", "c"].map(|node| {
        let slice = Key::cluster(format!("{node}-0-counters"));
        let Some(Object::ResourceSlice(slice)) = server.get(Kind::ResourceSlice, &slice).map(AsRef::as_ref)
        else {
            return 0;
        };
        report(slice).map_or(0, |report| managed(&report))
    });
    nodes.into_iter().max().unwrap_or_default()
}

/// Whether other waiting pods or gangs may keep managed cards from the pod, or its gang, at the end of a run.
pub fn is_kept_from(around: &Surroundings, server: &Server, pod: &Pod) -> bool {
    let asks = |pod: &Pod| cards_asked(pod) != Some(0) || names_a_claim(pod);
    let waits = |pod: &&Pod| {
        node_name(pod).is_none() && !has_ended(pod) && pod.metadata.deletion_timestamp.is_none() && asks(pod)
    };
    let mine = who(pod);
    let pods = || server.pods().map(|(_, pod)| pod);
    let of = |name: &str| order(&pods().filter(|other| who(other) == name).collect::<Vec<_>>());
    let own = of(&mine);
    // A gang running in part reserves nothing for its other pods.
    let is_begun = pods().any(|other| who(other) == mine && node_name(other).is_some());
    let most = most_cards(server);
    let could_fit = |pod: &&Pod| {
        gang_of(pod).is_some() || names_a_claim(pod) || cards_asked(pod).is_none_or(|cards| cards <= most)
    };
    let others = grouped(pods().filter(waits).filter(could_fit));
    others.iter().filter(|(who, _)| **who != mine).any(|(who, pods)| {
        let order = of(who);
        // How many pods fit on a node is unknown for gangs that ask for parts of cards.
        let may_reserve = |pod: &Pod| gang_of(pod).is_some() && cards_asked(pod).is_some();
        let is_first = may_reserve(pod) && !is_begun && own < order;
        let is_reserved = may_reserve(pods[0]) && order.0 <= own.0 && !is_first;
        (around.placement.is_strict && order < own)
            || (around.placement.reserve_after.is_some() && is_reserved)
    })
}
