//! Groups whose pods use none of their devices, in pools that have consequences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::DeviceName;
use tessera_api::gpu_pool::{Allocation, IDLE_ANNOTATION, IdleAction, KEEP};
use tessera_api::node_report::CardReport;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use super::{IdleClaims, why_idle};
use crate::gangs::Gangs;
use crate::group::GroupId;
use crate::intent::{Intent, Topic};
use crate::pod::reference;
use crate::world::World;
use crate::{holders, order};

/// The running pods of an idle group.
pub(crate) struct IdleGroup {
    pub pods: Vec<Arc<Pod>>,
    /// The longest of its pools.
    pub grace: Time,
    /// What the plugin says of one of its claims.
    pub why: String,
}

impl IdleGroup {
    /// Tells each pod that it is evicted at `end`, for `purpose`.
    pub fn announce(&self, end: Time, purpose: &str) -> Vec<Intent> {
        let message = format!(
            "idle, {}. It is evicted{purpose} at {} UTC, unless its devices are used before, or it has the annotation \
             {IDLE_ANNOTATION}: {KEEP} and its GpuPool lets it keep them",
            self.why,
            time_of_day(end),
        );
        let tell = |pod: &Arc<Pod>| Intent::Tell {
            pod: reference(pod),
            topic: Topic::Idle,
            message: message.clone(),
        };
        self.pods.iter().map(tell).collect()
    }

    /// Why its pods are evicted for another group.
    pub fn why_evicted(&self, asker: &GroupId) -> String {
        format!("its GpuPool gives idle devices to those who wait, now to {asker}, and {}", self.why)
    }
}

/// The time of day in UTC, as text.
pub(crate) fn time_of_day(time: Time) -> String {
    let time = i64::try_from(time.as_secs()).ok().and_then(|time| Timestamp::from_second(time).ok());
    time.unwrap_or_default().strftime("%H:%M:%S").to_string()
}

/// The groups whose pods use none of their devices and may be evicted for that by `action`, of the least that their pools must say.
pub(crate) fn idle_groups(
    world: &World,
    gangs: &Gangs,
    idle: &IdleClaims,
    action: IdleAction,
) -> BTreeMap<GroupId, IdleGroup> {
    if idle.claims().is_empty() {
        return BTreeMap::new();
    }
    let claims = claims_of_pods(world);
    let is_idle = |claims: &[Key]| claims.iter().any(|claim| idle.claims().contains(claim));
    let holding = claims.iter().filter(|(_, claims)| is_idle(claims));
    let groups: BTreeSet<GroupId> = holding.map(|(pod, _)| gangs.group_of(pod)).collect();
    let found = |id: GroupId| Some((id.clone(), idle_group(world, gangs, &id, &claims, action)?));
    groups.into_iter().filter_map(found).collect()
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

fn idle_group(
    world: &World,
    gangs: &Gangs,
    id: &GroupId,
    claims: &BTreeMap<Key, Vec<Key>>,
    action: IdleAction,
) -> Option<IdleGroup> {
    let objects = world.cluster.objects();
    let keys: Vec<&Key> = match id {
        GroupId::Pod(pod) => vec![pod],
        GroupId::Gang(gang) => gangs.members(gang).collect(),
    };
    let mut group = IdleGroup { pods: Vec::new(), grace: Time::ZERO, why: String::new() };
    for key in keys.iter().copied() {
        let pod = objects.pods.get(key)?;
        if pod.has_ended() {
            continue;
        }
        if pod.node_name().is_none() || order::may_be_of_a_gang(world, pod) {
            return None;
        }
        if action == IdleAction::Evict && !may_end(pod) {
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
                let card = card(world, claim.allocated_node()?, &result.device)?;
                let limits = card.idle.as_ref()?;
                let is_ours = action == IdleAction::Evict || card.allocation == Allocation::Managed;
                if limits.action < action || !is_ours || (wants_to_keep && limits.may_keep) {
                    return None;
                }
                group.grace = group.grace.max(Time::from_secs(limits.grace_seconds.into()));
            }
        }
        group.pods.push(pod.clone());
    }
    Some(group).filter(|group| !group.pods.is_empty())
}

/// The device's card, in the node's report.
fn card<'w>(world: &'w World, node: &str, device: &str) -> Option<&'w CardReport> {
    let device: DeviceName = device.parse().ok()?;
    let (_, report) = world.fleet.node(world.fleet.find(node)?).report.as_ref()?;
    report.cards.get(&device.card())
}

/// Whether the pod's end frees its devices: other controllers than a Job make another pod at once.
fn may_end(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_none_or(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
}
