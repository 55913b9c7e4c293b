//! Evicts pods that do not use their devices, in pools that say so: whole groups only, after an announcement, and only pods that
//! nobody replaces for good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::DeviceName;
use tessera_api::gpu_pool::{IDLE_ANNOTATION, Idle, IdleAction, KEEP};
use tessera_cluster::{ClaimExt, Key, Kind, PodExt};
use tessera_placement::Time;

use crate::group::GroupId;
use crate::idle::{IdleClaims, why_idle};
use crate::intent::{Intent, Topic};
use crate::pod::reference;
use crate::state::State;
use crate::world::World;
use crate::{holders, order};

/// The running pods of an idle group.
struct IdleGroup {
    pods: Vec<Arc<Pod>>,
    /// The longest of its pools.
    grace: Time,
    /// What the plugin says of one of its claims.
    why: String,
}

/// Handles a changed or deleted claim: its pods may have ceased to use it, or use it again.
pub(crate) fn track(world: &World, idle: &mut IdleClaims, now: Time, key: &Key) {
    let claim = world.cluster.objects().claims.get(key);
    idle.set(key, claim.is_some_and(|claim| why_idle(claim, &world.driver).is_some()), now);
}

/// Announces evictions, and evicts.
pub(crate) fn evict(state: &mut State, now: Time) -> Vec<Intent> {
    if state.leadership.term.is_none() {
        state.idle.keep_announced(&BTreeSet::new());
        return Vec::new();
    }
    let Some(idle) = state.idle.take_due(now) else { return Vec::new() };
    let claims = claims_of_pods(&state.world);
    let holding = claims.iter().filter(|(_, claims)| claims.iter().any(|claim| idle.contains(claim)));
    let groups: BTreeSet<GroupId> = holding.map(|(pod, _)| state.gangs.group_of(pod)).collect();
    let mut found = BTreeSet::new();
    let mut intents = Vec::new();
    for id in groups {
        let Some(group) = idle_group(state, &id, &claims) else { continue };
        found.insert(id.clone());
        let Some(announced) = state.idle.announce(&id, now) else {
            let end = now + group.grace;
            state.idle.look_at(end);
            intents.extend(announce(&group, end));
            continue;
        };
        let end = announced + group.grace;
        if now < end {
            state.idle.look_at(end);
        } else if is_allowed(state, now, &group) {
            intents.extend(evictions(state, now, &group));
        }
    }
    state.idle.keep_announced(&found);
    intents
}

/// The pods with claims of this driver's devices, and the claims.
fn claims_of_pods(world: &World) -> BTreeMap<Key, Vec<Key>> {
    let mut pods: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
    for (key, claim) in &world.cluster.objects().claims {
        if claim.results().iter().any(|result| result.driver == world.driver) {
            for pod in holders::pods_holding(key, claim) {
                pods.entry(pod).or_default().push(key.clone());
            }
        }
    }
    pods
}

/// The group, if its pods use none of their devices and may be evicted for that.
fn idle_group(state: &State, id: &GroupId, claims: &BTreeMap<Key, Vec<Key>>) -> Option<IdleGroup> {
    let world = &state.world;
    let objects = world.cluster.objects();
    let keys: Vec<&Key> = match id {
        GroupId::Pod(pod) => vec![pod],
        GroupId::Gang(gang) => state.gangs.members(gang).collect(),
    };
    let mut group = IdleGroup { pods: Vec::new(), grace: Time::ZERO, why: String::new() };
    for key in keys.iter().copied() {
        let pod = objects.pods.get(key)?;
        if pod.has_ended() {
            continue;
        }
        if pod.node_name().is_none() || !may_end(pod) || order::may_be_of_a_gang(world, pod) {
            return None;
        }
        let wants_to_keep = pod
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(IDLE_ANNOTATION))
            .is_some_and(|value| value == KEEP);
        for name in claims.get(key).into_iter().flatten() {
            let claim = objects.claims.get(name)?;
            let why = why_idle(claim, &world.driver)?;
            // A claim that others use, too, stays.
            let is_of_others =
                |pod: &Key| !keys.contains(&pod) && objects.pods.get(pod).is_some_and(|pod| !pod.has_ended());
            if holders::pods_holding(name, claim).iter().any(is_of_others) {
                return None;
            }
            if group.why.is_empty() {
                group.why = format!("claim {}: {why}", name.name);
            }
            for result in claim.results().iter().filter(|result| result.driver == world.driver) {
                let limits = limits(world, claim.allocated_node()?, &result.device)?;
                if limits.action != IdleAction::Evict || (wants_to_keep && limits.may_keep) {
                    return None;
                }
                group.grace = group.grace.max(Time::from_secs(limits.grace_seconds.into()));
            }
        }
        group.pods.push(pod.clone());
    }
    Some(group).filter(|group| !group.pods.is_empty())
}

/// What the pool of a device's card says, by the node's report.
fn limits<'w>(world: &'w World, node: &str, device: &str) -> Option<&'w Idle> {
    let device: DeviceName = device.parse().ok()?;
    let (_, report) = world.fleet.node(world.fleet.find(node)?).report.as_ref()?;
    report.cards.get(&device.card())?.idle.as_ref()
}

/// Whether the pod's end frees its devices: other controllers than a Job make another pod at once.
fn may_end(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_none_or(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
}

/// Whether nothing is known that forbids the eviction of one of the pods: a gang goes as a whole or stays.
fn is_allowed(state: &State, now: Time, group: &IdleGroup) -> bool {
    let objects = state.world.cluster.objects();
    let mut left: BTreeMap<&Key, i64> = BTreeMap::new();
    for pod in &group.pods {
        for (key, budget) in objects.budgets_of(pod) {
            *left.entry(key).or_insert(budget.status.disruptions_allowed.into()) -= 1;
        }
    }
    let is_refused = |pod: &Arc<Pod>| state.ledger.evictions.is_refused(&reference(pod), now);
    left.values().all(|left| *left >= 0)
        && !group.pods.iter().any(is_refused)
        && (group.pods.len() == 1 || !objects.unlisted.contains(&Kind::DisruptionBudget))
}

fn announce(group: &IdleGroup, end: Time) -> Vec<Intent> {
    let end = i64::try_from(end.as_secs()).ok().and_then(|end| Timestamp::from_second(end).ok());
    let message = format!(
        "idle, {}. It is evicted at {} UTC, unless its devices are used before, or it has the annotation {IDLE_ANNOTATION}: {KEEP} \
         and its GpuPool lets it keep them",
        group.why,
        end.unwrap_or_default().strftime("%H:%M:%S"),
    );
    let tell =
        |pod: &Arc<Pod>| Intent::Tell { pod: reference(pod), topic: Topic::Idle, message: message.clone() };
    group.pods.iter().map(tell).collect()
}

fn evictions(state: &mut State, now: Time, group: &IdleGroup) -> Vec<Intent> {
    let why = format!("its GpuPool gives idle devices to others, and {}", group.why);
    let pods = group.pods.iter().map(|pod| reference(pod));
    let sent: Vec<_> = pods.filter(|pod| state.ledger.evictions.send(pod.clone(), None, now)).collect();
    sent.into_iter().map(|pod| Intent::Evict { pod, why: why.clone() }).collect()
}
