//! Idle groups in the way of one that waits: told before they are evicted, and only if their pool gives idle devices to others.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_pool::IdleAction;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::group::GroupId;
use crate::idle::IdleClaims;
use crate::idle::groups::{IdleGroup, idle_groups, time_of_day};
use crate::idle::successors::{owner_of, text_of};
use crate::intent::Intent;
use crate::pod::reference;
use crate::teams::TeamId;
use crate::world::World;
use crate::{order, victims};

/// Idle groups whose devices go to those who wait.
pub(super) struct Wanted {
    groups: BTreeMap<GroupId, IdleGroup>,
}

/// Idle groups that were told of their eviction, and are not to be evicted before `end`.
pub(super) struct Announced {
    pub intents: Vec<Intent>,
    pub end: Time,
    pub why: String,
}

impl Wanted {
    pub fn new(world: &World, gangs: &Gangs, idle: &IdleClaims) -> Self {
        Wanted { groups: idle_groups(world, gangs, idle, IdleAction::WhenWanted) }
    }

    /// The idle group of the pod.
    pub fn of(&self, gangs: &Gangs, pod: &Key) -> Option<&IdleGroup> {
        self.groups.get(&gangs.group_of(pod))
    }

    /// The pods that go with this one for a group of the team: an idle gang as a whole.
    pub fn going_with(&self, world: &World, gangs: &Gangs, taker: TeamId, pod: &Key) -> Vec<Key> {
        match self.of(gangs, pod) {
            Some(_) => order::with_its_gang(world, gangs, pod),
            None => victims::going_with(world, gangs, taker, pod),
        }
    }

    /// Of these victims the idle ones, each with who makes another pod in its place; and the longest time between the first Event and an
    /// eviction.
    pub fn among(
        &self,
        world: &World,
        gangs: &Gangs,
        victims: &BTreeSet<Key>,
    ) -> (BTreeMap<String, String>, Time) {
        let mut grace = Time::ZERO;
        let mut found = BTreeMap::new();
        for key in victims {
            let (Some(group), Some(pod)) = (self.of(gangs, key), world.cluster.objects().pods.get(key))
            else {
                continue;
            };
            grace = grace.max(group.grace);
            found.insert(text_of(&reference(pod)), owner_of(gangs, pod));
        }
        (found, grace)
    }

    /// Tells the idle groups of these pods that they are evicted for `asker`. `None` once their time is over, or if none is idle.
    pub fn announce(
        &self,
        (gangs, idle): (&Gangs, &mut IdleClaims),
        now: Time,
        asker: &GroupId,
        pods: &[&Pod],
    ) -> Option<Announced> {
        let ids: BTreeSet<GroupId> = pods.iter().map(|pod| gangs.group_of(&pod.key())).collect();
        let mut found = Announced { intents: Vec::new(), end: now, why: String::new() };
        for id in ids {
            let Some(group) = self.groups.get(&id) else { continue };
            let announced = idle.announce(&id, Some(asker), now);
            let end = announced.unwrap_or(now) + group.grace;
            if announced.is_none() {
                found.intents.extend(group.announce(end, &format!(" for {asker}, which waits,")));
            }
            found.end = found.end.max(end);
        }
        found.why = format!(
            "pods that do not use their devices are evicted for it at {} UTC, unless they use them before",
            time_of_day(found.end)
        );
        Some(found).filter(|found| found.end > now || !found.intents.is_empty())
    }
}
