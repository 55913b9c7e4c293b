//! Whether a team may still have what is nominated for its group, once the pods that are ending are gone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::managed::Nomination;
use tessera_cluster::Key;
use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::fit::Fit;
use tessera_placement::reason::Reason;
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::{TakeLimit, worths};

use super::node_of;
use crate::gathering::Gathering;
use crate::group::Member;
use crate::idle::successors::pod_named;
use crate::pod::ends_soon;
use crate::teams::{Allowance, Division, ReclaimTo, TeamId};
use crate::waits::Waits;
use crate::world::World;
use crate::{holders, places};

/// Pods that are ending, and who holds claims. Holds until an object changes, and so for a round.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Each with its node.
    pods: Vec<(Key, Option<String>)>,
    /// Claims by pod that holds them.
    claims: BTreeMap<Key, Vec<Key>>,
    /// Pods on the move, with the devices of their successors.
    moving: BTreeMap<Key, Vec<DeviceRequestAllocationResult>>,
}

impl Ending {
    pub fn of(world: &World, gathering: &Gathering, now: Time) -> Self {
        let objects = world.cluster.objects();
        let ending = objects.pods.iter().filter(|(_, pod)| ends_soon(pod, now));
        let pods = ending.map(|(key, pod)| (key.clone(), node_of(world, pod).map(str::to_owned))).collect();
        let mut claims: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        for (key, claim) in &objects.claims {
            for pod in holders::pods_holding(key, claim) {
                claims.entry(pod).or_default().push(key.clone());
            }
        }
        let places = gathering.places.iter().filter(|place| place.taken_by.is_none() && !place.is_charged);
        let moving = places.filter_map(|place| {
            Some((pod_named(&place.planned.pod)?.key, places::results(world, &place.planned)?))
        });
        Ending { pods, claims, moving: moving.collect() }
    }

    /// Whether the team would have more than its limits with these nodes, once the victims and all pods that are ending are gone, and pods on the
    /// move are in their places: the quota or the team's use may have changed.
    pub(super) fn would_exceed(
        &self,
        world: &mut World,
        limit: Option<&TakeLimit>,
        nominated: &[(&Member, Nomination)],
        victims: &BTreeSet<Key>,
    ) -> bool {
        limit.is_some_and(|limit| self.would_take(world, limit, nominated, victims).is_none())
    }

    /// The worth of what the members take on their nodes then; `None` beyond the limit.
    fn would_take(
        &self,
        world: &mut World,
        limit: &TakeLimit,
        nominated: &[(&Member, Nomination)],
        victims: &BTreeSet<Key>,
    ) -> Option<Worth> {
        // Others neither count to the limits nor hold anything on the nodes.
        let family = |namespace: &str| world.teams.family(world.teams.team_of(namespace));
        let own = nominated.first().map(|(member, _)| family(&member.key.namespace));
        let concerns = |(pod, node): &&(Key, Option<String>)| {
            own == Some(family(&pod.namespace))
                || node
                    .as_ref()
                    .is_none_or(|node| nominated.iter().any(|(_, nomination)| nomination.node == *node))
        };
        let ending = self.pods.iter().filter(concerns).map(|(pod, _)| pod.clone());
        let gone: BTreeSet<Key> = victims.iter().cloned().chain(ending).collect();
        let claims: BTreeSet<&Key> = gone.iter().filter_map(|pod| self.claims.get(pod)).flatten().collect();
        let is_left = |key: &&Key| {
            let claim = world.cluster.objects().claims.get(*key);
            claim.is_some_and(|claim| holders::pods_holding(key, claim).iter().all(|pod| gone.contains(pod)))
        };
        let claims: Vec<Key> = claims.into_iter().filter(is_left).cloned().collect();
        let mut limit = limit.clone();
        for pod in &gone {
            if let Some(results) = self.moving.get(pod) {
                limit = limit.beside(&world.cluster, &world.driver, &pod.namespace, results);
            }
        }
        let gone: Vec<Key> = gone.into_iter().collect();
        let (base, ..) = world.base();
        let mut statement = Statement::new(Base { limit: Some(&limit), ..base });
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
        &self,
        world: &mut World,
        waits: &Waits,
        taker: TeamId,
        nominated: &[(&Member, Nomination)],
        (others, unsent, victims): (&[Key], &[Key], &BTreeSet<Key>),
    ) -> Option<(TeamId, &'static str)> {
        let namespace = &nominated.first()?.0.key.namespace;
        let family = world.teams.family(taker);
        let limit = world.teams.limit(namespace, Allowance::ParentGuarantee);
        let is_of_others = |pod: &Key| world.teams.family(world.teams.team_of(&pod.namespace)) != family;
        if others.iter().all(is_of_others) && !self.would_exceed(world, limit.as_ref(), nominated, victims) {
            return Some((family, "guarantee"));
        }
        let limit = world.teams.fair_limit(&world.driver, namespace, &Division::of(world, waits))?;
        let taken = self.would_take(world, &limit, nominated, victims)?;
        let is_fair = world.teams.reclaim_to == ReclaimTo::FairShare
            && world.teams.would_have_less_than_all(&world.cluster, (taker, taken.cards), unsent.iter());
        is_fair.then_some((taker, "fair share"))
    }
}
