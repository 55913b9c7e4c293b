//! Members, priorities and queue positions of pods and gangs.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::{self, GangError, GangId, Membership};
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::group::GroupId;
use crate::kueue;
use crate::queue::{Asks, Order};
use crate::teams::Place;
use crate::world::World;

/// A pod of a group.
pub(crate) struct MemberPod {
    pub key: Key,
    pub pod: Arc<Pod>,
    /// `None` for a pod outside gangs.
    pub membership: Option<Membership>,
}

/// The pod's priority, or its gang's.
pub(crate) fn priority_of(world: &World, gangs: &Gangs, pod: &Key) -> i32 {
    match gangs.of(pod) {
        Some(gang) => order_of(world, gangs, gang).priority(),
        None => world.cluster.objects().pods.get(pod).map_or(0, |pod| pod.priority()),
    }
}

/// The bound pods of this pod's gang and the pod itself, or the pod alone.
pub(crate) fn with_its_gang(world: &World, gangs: &Gangs, pod: &Key) -> Vec<Key> {
    match gangs.of(pod) {
        None => vec![pod.clone()],
        Some(gang) => {
            let is_bound = |key: &&Key| {
                let pod = world.cluster.objects().pods.get(*key);
                pod.is_some_and(|pod| pod.node_name().is_some() && !pod.has_ended())
            };
            let others = gangs.members(gang).filter(|key| *key == pod || is_bound(key));
            others.cloned().collect()
        }
    }
}

/// Pods without which the gang goes on: of its bound pods those beyond the number that it needs, the last by rank; and its pods that are
/// ending while enough are bound.
pub(crate) fn surplus_of(world: &World, gangs: &Gangs, gang: &GangId) -> BTreeSet<Key> {
    let objects = world.cluster.objects();
    let (mut bound, mut others, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let mut min = 0;
    for key in gangs.members(gang) {
        let Some(pod) = objects.pods.get(key) else { continue };
        let Some(membership) = gang::of_pod(objects, pod).ok().flatten() else { return BTreeSet::new() };
        min = min.max(usize::try_from(membership.min).unwrap_or(usize::MAX));
        all.push(pod.as_ref());
        if pod.has_ended() {
            others.push(key);
        } else if pod.node_name().is_some() {
            bound.push((membership.rank, key));
        }
    }
    let succeeded = all.iter().filter(|pod| pod.phase() == Some("Succeeded")).count();
    let needed = min.saturating_sub(succeeded + gang::done_and_gone(objects, &all)).max(1);
    if bound.len() < needed {
        return BTreeSet::new();
    }
    bound.sort_unstable();
    let last = bound.into_iter().skip(needed).map(|(_, key)| key);
    last.chain(others).cloned().collect()
}

/// The queue position of a gang.
pub(crate) fn order_of(world: &World, gangs: &Gangs, gang: &GangId) -> Order {
    let objects = world.cluster.objects();
    let pods = || gangs.members(gang).filter_map(|key| objects.pods.get(key)).map(AsRef::as_ref);
    let member = pods().next().and_then(|pod| gang::of_pod(objects, pod).ok().flatten());
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let (size, min) =
        member.map_or((usize::MAX, usize::MAX), |member| (count(member.size), count(member.min)));
    let order = Order::of_gang(pods(), min, gangs.formed(objects, gang, size, pods()));
    kueue::with_age_of_owner(objects, order, pods())
}

/// The queue position of a group; `None` for a pod that no longer exists.
pub(crate) fn order_of_group(world: &World, gangs: &Gangs, id: &GroupId) -> Option<Order> {
    Some(order_in_team(world, gangs, id)?.of_team(place_of(world, gangs, id)))
}

/// The place of the group's team; `None` for an exempt group.
fn place_of(world: &World, gangs: &Gangs, id: &GroupId) -> Option<Place> {
    let place = || world.teams.place(&world.cluster, world.teams.team_of(id.namespace()));
    (!is_exempt(world, gangs, id)).then(place)
}

/// Whether all pods of the group are of an exempt priority class.
pub(crate) fn is_exempt(world: &World, gangs: &Gangs, id: &GroupId) -> bool {
    let pods = &world.cluster.objects().pods;
    let is_exempt = |key: &Key| pods.get(key).is_some_and(|pod| world.teams.is_exempt(pod));
    match id {
        GroupId::Pod(pod) => is_exempt(pod),
        GroupId::Gang(gang) => gangs.members(gang).all(is_exempt),
    }
}

/// The same without the place of its team.
pub(crate) fn order_in_team(world: &World, gangs: &Gangs, id: &GroupId) -> Option<Order> {
    match id {
        GroupId::Gang(gang) => Some(order_of(world, gangs, gang)),
        GroupId::Pod(pod) => world.cluster.objects().pods.get(pod).map(|pod| Order::of(pod)),
    }
}

/// The queue position and expected end of a pod or its gang.
pub(crate) fn asks(world: &World, gangs: &Gangs, now: Time, pod: &Pod) -> Asks {
    let key = Key::from(&pod.metadata);
    let ends = |pod: &Pod| {
        let seconds = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(|seconds| now + Time::from_secs(seconds))
    };
    let team = place_of(world, gangs, &gangs.group_of(&key));
    match gangs.of(&key) {
        None => {
            let order = Order::of(pod).of_team(team);
            Asks { who: GroupId::Pod(key), order, ends: ends(pod), now }
        }
        Some(gang) => {
            let pods = gangs.members(gang).filter_map(|key| world.cluster.objects().pods.get(key));
            let all: Option<Vec<Time>> = pods.map(|pod| ends(pod)).collect();
            Asks {
                who: GroupId::Gang(gang.clone()),
                order: order_of(world, gangs, gang).of_team(team),
                ends: all.and_then(|all| all.into_iter().max()),
                now,
            }
        }
    }
}

/// Whether the pod may be in a gang of an unlisted kind, whose other pods to evict with it are unknown.
pub(crate) fn may_be_of_a_gang(world: &World, pod: &Pod) -> bool {
    matches!(gang::of_pod(world.cluster.objects(), pod), Err(GangError::NotListed { .. }))
}

/// The pods of a group, except a gang's terminating and failed ones: replacements are expected for them.
pub(crate) fn members_of(world: &World, gangs: &Gangs, id: &GroupId) -> Vec<MemberPod> {
    let objects = world.cluster.objects();
    match id {
        GroupId::Pod(key) => {
            let pod = objects.pods.get(key).cloned();
            pod.map(|pod| MemberPod { key: key.clone(), pod, membership: None }).into_iter().collect()
        }
        GroupId::Gang(gang) => {
            let found = gangs.members(gang).filter_map(|key| {
                let pod = objects.pods.get(key)?;
                let is_lost = pod.metadata.deletion_timestamp.is_some() || pod.phase() == Some("Failed");
                let membership = gang::of_pod(objects, pod).ok().flatten().filter(|_| !is_lost)?;
                Some(MemberPod { key: key.clone(), pod: pod.clone(), membership: Some(membership) })
            });
            found.collect()
        }
    }
}
