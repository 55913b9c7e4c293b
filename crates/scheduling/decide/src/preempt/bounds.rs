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
use tessera_placement::take_limit::{TakeLimit, worths};

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
    limit.is_some_and(|limit| would_take(world, now, limit, nominated, victims).is_none())
}

/// The worth of what the members take on their nodes then; `None` beyond the limit.
fn would_take(
    world: &mut World,
    now: Time,
    limit: &TakeLimit,
    nominated: &[(&Member, Nomination)],
    victims: &BTreeSet<Key>,
) -> Option<Worth> {
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
    let mut taken = Vec::new();
    for (member, nomination) in nominated {
        let index = statement.fleet().find(&nomination.node);
        let (Some(demand), Some(index)) = (&member.demand, index) else { continue };
        match statement.fit(demand, index) {
            Fit::Takes(takes) => {
                for allocation in &takes.allocations {
                    let devices = worths(statement.cluster(), statement.driver(), allocation);
                    taken.extend(devices.into_iter().map(|(_, worth)| worth));
                }
                statement.place(&member.key, &member.pod, demand, index, &takes);
            }
            Fit::Blocked(Reason::TeamLimit) => return None,
            _ => {}
        }
    }
    Some(taken.into_iter().sum())
}

/// The team and the share for which devices are taken back beyond the team's own guarantee: its parent's from teams of other parents, or its
/// fair share from teams that have more. Those of `unsent` were not asked to go yet: once one is gone, its team has less for good reason.
pub(super) fn beyond_guarantee(
    world: &mut World,
    waits: &Waits,
    now: Time,
    taker: TeamId,
    nominated: &[(&Member, Nomination)],
    (others, unsent, victims): (&[Key], &[Key], &BTreeSet<Key>),
) -> Option<(TeamId, &'static str)> {
    let namespace = &nominated.first()?.0.key.namespace;
    let family = world.teams.family(taker);
    let limit = world.teams.limit(namespace, Allowance::ParentGuarantee);
    let is_of_others = |pod: &Key| world.teams.family(world.teams.team_of(&pod.namespace)) != family;
    if others.iter().all(is_of_others) && !would_exceed(world, now, limit.as_ref(), nominated, victims) {
        return Some((family, "guarantee"));
    }
    let limit = world.teams.fair_limit(&world.driver, namespace, &Division::of(world, waits))?;
    let taken = would_take(world, now, &limit, nominated, victims)?;
    let is_fair = world.teams.reclaim_to == ReclaimTo::FairShare
        && world.teams.would_have_less_than_all(&world.cluster, (taker, taken.cards), unsent.iter());
    is_fair.then_some((taker, "fair share"))
}
