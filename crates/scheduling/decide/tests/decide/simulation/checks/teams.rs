//! Quotas: nothing is written above a limit, and nobody is evicted for a team but by its rules.

mod end;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_quota::{GpuQuotaSpec, Unit};
use tessera_api::managed::{NOMINATION_ANNOTATION, Nomination};
use tessera_cluster::Key;
use tessera_decide::{ClaimAllocation, ReclaimTo, Time};

use super::gangs::{is_called, is_lost, is_member};
use super::queue::{self, lowest_priority};
use super::reasons::{is_for_fair_share, is_for_parent, preemptor, taker};
use crate::objects::DRIVER;
use crate::simulation::api_server::{Server, Surroundings, node_name};
use crate::simulation::oracle::{self, DeviceId, Taken, Teams};
use crate::simulation::quotas::GRACE;
use crate::simulation::replica::Replica;
use crate::simulation::users::cards_asked;

pub use end::waits_for_what_others_borrow;

/// What quotas say but for weights, and the team of each namespace, by a replica's view.
#[derive(Debug, Default)]
pub struct Terms {
    quotas: BTreeMap<String, GpuQuotaSpec>,
    teams: BTreeMap<String, Option<String>>,
    /// When they changed last: namespaces that use nothing aside.
    since: Time,
}

/// Follows the quotas in the replica's view, before it decides.
pub fn look(around: &Surroundings, replica: &mut Replica) {
    if !around.has_quotas() {
        return;
    }
    let teams = Teams::of(&replica.view);
    let terms = teams.quotas().map(|quota| {
        (quota.metadata.name.clone().unwrap_or_default(), GpuQuotaSpec { weight: 1, ..quota.spec.clone() })
    });
    let quotas: BTreeMap<String, GpuQuotaSpec> = terms.collect();
    let team = |namespace: &&str| ((*namespace).to_owned(), teams.name_of(namespace).map(str::to_owned));
    let of_namespaces: BTreeMap<String, Option<String>> = around.namespaces.iter().map(team).collect();
    let before = std::mem::take(&mut replica.terms);
    let is_same = |claim: &Key| {
        let team = |all: &BTreeMap<String, Option<String>>| all.get(&claim.namespace).cloned().flatten();
        team(&of_namespaces) == team(&before.teams)
    };
    let is_known = quotas == before.quotas && oracle::taken(&replica.view).keys().all(is_same);
    let since = if is_known { before.since } else { around.now };
    replica.terms = Terms { quotas, teams: of_namespaces, since };
}

/// What the replica knows to be taken: by claims that it has seen, or is writing.
fn known(replica: &Replica, server: &Server) -> Taken {
    let mut taken = oracle::taken(&replica.view);
    let arrived = replica.on_the_way.arrived.iter();
    let arrived = arrived.map(|arrived| (arrived.claim.clone(), arrived.devices.clone()));
    for (claim, devices) in arrived.chain(replica.allocations_under_way(server)) {
        taken.entry(claim).or_insert(devices);
    }
    taken
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// Checks the devices against the limits of the pod's team, and its guarantee if it does not borrow, unless it is exempt.
pub fn may_allocate(
    around: &mut Surroundings,
    replica: &Replica,
    server: &Server,
    pod: &Pod,
    claims: &[ClaimAllocation],
) {
    if !around.has_quotas() || oracle::is_exempt(pod) {
        return;
    }
    let devices: Vec<DeviceId> =
        claims.iter().flat_map(|claim| oracle::devices_in(&claim.allocation)).collect();
    let mut taken = known(replica, server);
    claims.iter().for_each(|claim| drop(taken.remove(&claim.claim.key)));
    let teams = Teams::of(&replica.view);
    if let Some(limit) = teams.exceeded(&taken, namespace(pod), !oracle::borrows(pod), &devices) {
        around.violated(|| format!("{} gets {devices:?} beyond {limit}", Key::from(&pod.metadata)));
    }
    // A gang goes on: its replacements are no new work.
    if let Some(quota) = teams.waits_for_hours(namespace(pod)).filter(|_| !is_member(pod)) {
        around.violated(|| format!("{} starts past the GPU hours of {quota}", Key::from(&pod.metadata)));
    }
}

/// Checks the limit of a pod's team where it is sent to kube-scheduler's cards.
pub fn may_steer(around: &mut Surroundings, replica: &Replica, server: &Server, pod: &Pod, node: &str) {
    if !around.has_quotas() || oracle::is_exempt(pod) {
        return;
    }
    let count = cards_asked(pod).unwrap_or(0);
    let cards: Vec<DeviceId> =
        (0..count).map(|number| (format!("{DRIVER}/{node}"), format!("any-{number}"))).collect();
    let taken = known(replica, server);
    let teams = Teams::of(&replica.view);
    if let Some(limit) = teams.exceeded(&taken, namespace(pod), !oracle::borrows(pod), &cards) {
        around.violated(|| format!("{} is sent to {node} beyond {limit}", Key::from(&pod.metadata)));
    }
}

fn nomination(pod: &Pod) -> Option<Nomination> {
    let text = pod.metadata.annotations.as_ref()?.get(NOMINATION_ANNOTATION)?;
    Nomination::decode(text)
}

/// The devices that the pod has.
fn devices_of(replica: &Replica, pod: &Pod) -> Vec<DeviceId> {
    let asked = oracle::asked(&replica.view, pod).unwrap_or_default();
    asked.iter().filter_map(|asked| asked.allocation()).flat_map(oracle::devices_in).collect()
}

/// The devices nominated for the pod.
fn nominated(pod: &Pod) -> Vec<DeviceId> {
    let Some(nomination) = nomination(pod) else { return Vec::new() };
    let pool = format!("{DRIVER}/{}", nomination.node);
    nomination.devices.into_iter().map(|device| (pool.clone(), device)).collect()
}

/// Checks that who is preempted is of the same team, unless for an exempt pod, and who has to give back borrows, for long enough, for a team within its
/// guarantee afterwards.
pub fn may_evict(around: &mut Surroundings, replica: &Replica, server: &Server, victim: &Pod, why: &str) {
    let teams = Teams::of(&replica.view);
    let Some(name) = preemptor(why).or(taker(why)).filter(|_| teams.are_any()) else { return };
    let for_whom: Vec<&Pod> = replica
        .pods()
        .filter(|pod| is_called(&Key::from(&pod.metadata), pod, name) && !is_lost(pod))
        .collect();
    let own = name.split('/').next().unwrap_or_default();
    let of_victim = namespace(victim);
    let is_same_team = teams.name_of(own) == teams.name_of(of_victim);
    let victim_name = Key::from(&victim.metadata);
    let is_preempted = taker(why).is_none();
    let is_for_exempt = for_whom.iter().all(|pod| oracle::is_exempt(pod));
    if is_preempted {
        if !is_same_team && !is_for_exempt {
            around.violated(|| format!("{victim_name} is preempted by {name} of another team"));
        }
        return;
    }
    let members = || replica.pods().filter(|pod| queue::who(pod) == queue::who(victim) && !is_lost(pod));
    // Pods of its own team and of lower priority may go beside the others.
    let is_lower = lowest_priority(members()) < lowest_priority(for_whom.iter().copied());
    if is_same_team {
        if !is_lower {
            around.violated(|| format!("{victim_name} gives back for {name} of its own team"));
        }
        return;
    }
    if oracle::is_exempt(victim) {
        around.violated(|| format!("{victim_name} is exempt, and gives back for {name}"));
    }
    if is_lower && is_for_exempt {
        return;
    }
    let wanted: Vec<DeviceId> = for_whom.iter().flat_map(|pod| nominated(pod)).collect();
    let mut taken = known(replica, server);
    // What is evicted for it, or is ending, may have counted for the same parent.
    let goes = |pod: &&Pod| {
        let name = Key::from(&pod.metadata).to_string();
        let is_planned = |text: &String| text.rsplit_once('/').is_some_and(|(key, _)| key == name);
        let mut planned = for_whom.iter().filter_map(|pod| nomination(pod)).flat_map(|found| found.victims);
        is_lost(pod) || queue::who(pod) == queue::who(victim) || planned.any(|text| is_planned(&text))
    };
    let gone: Vec<DeviceId> = replica.pods().filter(goes).flat_map(|pod| devices_of(replica, pod)).collect();
    let mut others = taken.clone();
    others.retain(|_, held| !held.iter().any(|device| wanted.contains(device) || gone.contains(device)));
    let is_fair = is_for_fair_share(why);
    if is_fair && around.reclaim_to != ReclaimTo::FairShare {
        around.violated(|| format!("{victim_name} gives back for {name} beyond its team's guarantee"));
    }
    let is_for_parent = is_for_parent(why);
    let beyond_parent = || is_for_parent.then(|| teams.beyond_parent(&others, own, &wanted)).flatten();
    let exceeded = teams.exceeded(&others, own, !is_fair && !is_for_parent, &wanted);
    if let Some(limit) = exceeded.or_else(beyond_parent) {
        around.violated(|| format!("{victim_name} is evicted for {name}, which gets more than {limit}"));
    }
    if around.now < replica.terms.since + GRACE {
        around.violated(|| format!("{victim_name} gives back too soon after a change of quotas"));
    }
    let least = teams.of_namespace(of_victim).map_or(0, |quota| quota.spec.min_runtime_seconds);
    let started = victim.status.as_ref().and_then(|status| status.start_time.as_ref());
    let until = started.map(|time| Time::from_secs(time.0.as_second().unsigned_abs() + u64::from(least)));
    if until.is_none_or(|until| until > around.now) {
        around.violated(|| format!("{victim_name} gives back before its {least} s are over: {until:?}"));
    }
    // What is expected counts, too.
    let of_team = |pod: &&Pod| teams.is_family(namespace(pod), of_victim);
    let is_sent = |pod: &Pod| {
        node_name(pod).is_none()
            && pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some())
            || replica.sent.contains_key(&super::reference(pod))
    };
    if replica.pods().filter(of_team).any(is_sent) {
        return;
    }
    for pod in replica.pods().filter(of_team) {
        taken.insert(
            Key::new(namespace(pod), format!("nominated for {:?}", pod.metadata.name)),
            nominated(pod),
        );
    }
    if is_fair && !teams.would_have_less(&taken, own, &wanted, of_victim) {
        around.violated(|| format!("{victim_name} gives back to {name}, whose team has as much afterwards"));
    }
    let has: Vec<DeviceId> = members().flat_map(|pod| devices_of(replica, pod)).collect();
    let is_of_family = teams.is_family(own, of_victim);
    if is_for_parent && is_of_family {
        around.violated(|| format!("{victim_name} gives back to {name} for the parent of both"));
    }
    if !is_of_family && teams.is_within_parents_guarantee(&taken, of_victim, &has) {
        around.violated(|| {
            format!("{victim_name} gives back for {name}, and its parent is within its guarantee")
        });
    }
    if teams.is_within_guarantee(&taken, of_victim, &has) {
        around.violated(|| {
            format!("{victim_name} gives back for {name}, and its team is within its guarantee")
        });
    }
}

/// Whether no limit or budget keeps the pod from these devices.
pub fn may_have(server: &Server, pod: &Pod, devices: &[DeviceId]) -> bool {
    let taken = oracle::taken(server.view());
    let teams = Teams::of(server.view());
    oracle::is_exempt(pod)
        || teams.waits_for_hours(namespace(pod)).is_none()
            && teams.exceeded(&taken, namespace(pod), !oracle::borrows(pod), devices).is_none()
}

/// Checks the charges of the replica, if it leads.
pub fn are_charged(around: &mut Surroundings, server: &Server, replica: &Replica) {
    let teams = Teams::of(server.view());
    if !replica.leads() || !teams.are_any() {
        return;
    }
    let taken = oracle::taken(server.view());
    for namespace in around.namespaces {
        let worths = replica.decider.cluster().charges().of_namespace(namespace);
        let charged = worths.fold((0, 0), |sum, (_, worth)| (sum.0 + worth.cards, sum.1 + worth.memory));
        let devices =
            || taken.iter().filter(|(claim, _)| claim.namespace == **namespace).flat_map(|(_, all)| all);
        let used = (teams.worth(Unit::Cards, devices(), true), teams.worth(Unit::Memory, devices(), true));
        if charged != used {
            around.violated(|| format!("{namespace} is charged {charged:?}, and uses {used:?}"));
        }
    }
}
