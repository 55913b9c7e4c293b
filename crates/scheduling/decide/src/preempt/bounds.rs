//! Whether a team may still have what is nominated for its group.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::managed::Nomination;
use tessera_cluster::Key;
use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::fit::Fit;
use tessera_placement::reason::Reason;
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::TakeLimit;

use crate::group::Member;
use crate::holders;
use crate::pod::ends_soon;
use crate::teams::{Allowance, Division, ReclaimTo, TeamId};
use crate::waits::Waits;
use crate::world::World;

/// Whether the team would have more than its limits with these nodes, once the victims and all pods that are ending are gone: the quota or
/// the team's use may have changed.
pub(super) fn would_exceed(
    world: &mut World,
    now: Time,
    limit: Option<&TakeLimit>,
    nominated: &[(&Member, Nomination)],
    victims: &BTreeSet<Key>,
) -> bool {
    let Some(limit) = limit else { return false };
    let objects = world.cluster.objects();
    let mut gone = victims.clone();
    gone.extend(objects.pods.iter().filter(|(_, pod)| ends_soon(pod, now)).map(|(key, _)| key.clone()));
    let is_left = |(key, claim): &(&Key, &Arc<ResourceClaim>)| {
        let pods = holders::pods_holding(key, claim);
        !pods.is_empty() && pods.iter().all(|pod| gone.contains(pod))
    };
    let claims: Vec<Key> = objects.claims.iter().filter(is_left).map(|(key, _)| key.clone()).collect();
    let gone: Vec<Key> = gone.into_iter().collect();
    let (base, ..) = world.base();
    let mut statement = Statement::new(Base { limit: Some(limit), ..base });
    statement.set_aside(&gone, &claims);
    nominated.iter().any(|(member, nomination)| {
        let index = statement.fleet().find(&nomination.node);
        let (Some(demand), Some(index)) = (&member.demand, index) else { return false };
        match statement.fit(demand, index) {
            Fit::Takes(takes) => {
                statement.place(&member.key, &member.pod, demand, index, &takes);
                false
            }
            fit => matches!(fit, Fit::Blocked(Reason::TeamLimit)),
        }
    })
}

/// The team and the share for which devices are taken back beyond the team's own guarantee: its parent's from teams of other parents, or its
/// fair share from teams that have more.
pub(super) fn beyond_guarantee(
    world: &mut World,
    waits: &Waits,
    now: Time,
    taker: TeamId,
    nominated: &[(&Member, Nomination)],
    (others, victims): (&[Key], &BTreeSet<Key>),
) -> Option<(TeamId, &'static str)> {
    let namespace = &nominated.first()?.0.key.namespace;
    let family = world.teams.family(taker);
    let limit = world.teams.limit(namespace, Allowance::ParentGuarantee);
    let is_of_others = |pod: &Key| world.teams.family(world.teams.team_of(&pod.namespace)) != family;
    if others.iter().all(is_of_others) && !would_exceed(world, now, limit.as_ref(), nominated, victims) {
        return Some((family, "guarantee"));
    }
    let worth = |nomination: &Nomination| -> Worth {
        let devices = world.cluster.inventory().devices_of_node(&nomination.node);
        let wanted = devices.filter(|device| {
            device.driver_name() == world.driver
                && nomination.devices.iter().any(|name| name == device.name())
        });
        wanted.map(Worth::of_whole).sum()
    };
    let more = nominated.iter().map(|(_, nomination)| worth(nomination)).sum::<Worth>().cards;
    let limit = world.teams.fair_limit(&world.driver, namespace, &Division::of(world, waits))?;
    let is_fair = world.teams.reclaim_to == ReclaimTo::FairShare
        && world.teams.would_have_less_than_all(&world.cluster, (taker, more), others.iter())
        && !would_exceed(world, now, Some(&limit), nominated, victims);
    is_fair.then_some((taker, "fair share"))
}
