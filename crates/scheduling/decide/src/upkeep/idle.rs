//! Evicts pods that do not use their devices, in pools that say so: whole groups only, after an announcement, and only pods that
//! nobody replaces for good.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_pool::IdleAction;
use tessera_cluster::{Key, Kind};
use tessera_placement::Time;

use crate::group::GroupId;
use crate::idle::groups::{IdleGroup, idle_groups};
use crate::idle::{IdleClaims, why_idle};
use crate::intent::Intent;
use crate::order;
use crate::pod::reference;
use crate::state::State;
use crate::waits::Waits;
use crate::world::World;

/// Handles a changed or deleted claim: its pods may have ceased to use it, or use it again.
pub(crate) fn track(world: &World, idle: &mut IdleClaims, waits: &mut Waits, now: Time, key: &Key) {
    let claim = world.cluster.objects().claims.get(key);
    let is_idle = claim.is_some_and(|claim| why_idle(claim, &world.driver).is_some());
    if idle.set(key, is_idle, now) && is_idle {
        // Its pods may make room for others.
        waits.begin_anew();
    }
}

/// Announces evictions, and evicts.
pub(crate) fn evict(state: &mut State, now: Time) -> Vec<Intent> {
    if state.leadership.term.is_none() {
        state.idle.keep_announced(|_, _| false);
        return Vec::new();
    }
    if !state.idle.take_due(now) {
        return Vec::new();
    }
    let found = idle_groups(&state.world, &state.gangs, &state.idle, IdleAction::Evict);
    let mut intents = Vec::new();
    for (id, group) in &found {
        let Some(announced) = state.idle.announce(id, None, now) else {
            let end = now + group.grace;
            state.idle.look_at(end);
            intents.extend(group.announce(end, ""));
            continue;
        };
        let end = announced + group.grace;
        if now < end {
            state.idle.look_at(end);
        } else if is_allowed(state, now, group) {
            intents.extend(evictions(state, now, group));
        }
    }
    let wanted = idle_groups(&state.world, &state.gangs, &state.idle, IdleAction::WhenWanted);
    let State { world, gangs, waits, idle, .. } = state;
    let does_wait =
        |id: &GroupId| order::members_of(world, gangs, id).iter().any(|member| waits.contains(&member.key));
    idle.keep_announced(|id, wanted_by| match wanted_by {
        None => found.contains_key(id),
        Some(asker) => wanted.contains_key(id) && does_wait(asker),
    });
    intents
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

fn evictions(state: &mut State, now: Time, group: &IdleGroup) -> Vec<Intent> {
    let why = format!("its GpuPool gives idle devices to others, and {}", group.why);
    let pods = group.pods.iter().map(|pod| reference(pod));
    let sent: Vec<_> = pods.filter(|pod| state.ledger.evictions.send(pod.clone(), None, now)).collect();
    sent.into_iter().map(|pod| Intent::Evict { pod, why: why.clone() }).collect()
}
