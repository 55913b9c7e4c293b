//! Choice of victims: lowest priority, then fewest gangs and pods, then youngest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use crate::gangs::Gangs;
use crate::group::{Gang, Member};
use crate::ledger::Ledger;
use crate::place::{self, Placement};
use crate::pod::{ends_soon, reference};
use crate::round::NoVictims;
use crate::state::State;
use crate::world::World;
use crate::{holders, order};

/// Limit on plans tried to spare individual victims.
const MOST_SPARED: usize = 16;

/// Pods evicted together: a gang, or one pod.
#[derive(Debug, Clone)]
struct Unit {
    pods: Vec<Key>,
    claims: Vec<Key>,
    /// The highest priority among its pods and gangs; a gang's priority is the lowest of its pods'.
    priority: i32,
    is_gang: bool,
    /// Creation time of its youngest pod.
    created: Option<Timestamp>,
    nodes: BTreeSet<String>,
    /// Whether all of its pods are already terminating.
    is_leaving: bool,
}

/// Merges units sharing a claim: it is free only after all of its pods are gone.
fn merged(units: impl Iterator<Item = Unit>) -> Vec<Unit> {
    let mut merged: Vec<Option<Unit>> = Vec::new();
    let mut of_claim: BTreeMap<Key, usize> = BTreeMap::new();
    for mut unit in units {
        let known: BTreeSet<usize> =
            unit.claims.iter().filter_map(|claim| of_claim.get(claim).copied()).collect();
        for other in known.into_iter().filter_map(|place| merged[place].take()) {
            unit.pods.extend(other.pods);
            unit.claims.extend(other.claims);
            unit.is_gang |= other.is_gang;
        }
        unit.pods.sort();
        unit.pods.dedup();
        of_claim.extend(unit.claims.iter().map(|claim| (claim.clone(), merged.len())));
        merged.push(Some(unit));
    }
    merged.into_iter().flatten().collect()
}

/// Placements for the pods with the victims to evict, or why no eviction helps.
pub(crate) fn find_victims(
    state: &mut State,
    now: Time,
    gang: &Gang,
    open: &[&Member],
    needed: usize,
) -> Result<(Vec<Placement>, BTreeSet<Key>), NoVictims> {
    let (leaving, mut units): (Vec<Unit>, Vec<Unit>) =
        units(&state.world, &state.ledger, &state.gangs, now, gang)
            .into_iter()
            .partition(|unit| unit.is_leaving);
    units.sort_by_key(|unit| {
        let devices = Reverse(unit.claims.len());
        (unit.priority, unit.is_gang, unit.pods.len(), devices, Reverse(unit.created.clone()))
    });
    let all = units.clone();
    keep_to_budgets(&state.world, &mut units);
    set_aside(&mut state.world, &leaving);
    let is_limited = units.len() < all.len();
    let found = fewest(state, now, gang, open, needed, units);
    let is_kept = found.is_none()
        && is_limited
        && fits_without(state, now, gang, open, needed, &[]).is_none()
        && fits_without(state, now, gang, open, needed, &all).is_some();
    put_back(&mut state.world, &leaving);
    let Some((placements, victims)) = found else {
        return Err(if is_kept { NoVictims::Kept } else { NoVictims::Nobody });
    };
    let pods = victims.into_iter().flat_map(|unit| unit.pods).collect();
    Ok((placements, pods))
}

/// The shortest prefix of units whose removal makes room, reduced to the ones actually in the way.
fn fewest(
    state: &mut State,
    now: Time,
    gang: &Gang,
    open: &[&Member],
    needed: usize,
    units: Vec<Unit>,
) -> Option<(Vec<Placement>, Vec<Unit>)> {
    // Terminating pods make enough room: nobody else has to go.
    if fits_without(state, now, gang, open, needed, &[]).is_some() {
        return None;
    }
    let mut most = 1;
    while fits_without(state, now, gang, open, needed, &units[..most.min(units.len())]).is_none() {
        if most >= units.len() {
            return None;
        }
        most *= 2;
    }
    let (mut too_few, mut enough) = (most / 2, most.min(units.len()));
    while too_few + 1 < enough {
        let middle = usize::midpoint(too_few, enough);
        if fits_without(state, now, gang, open, needed, &units[..middle]).is_some() {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    let mut victims = units[..enough].to_vec();
    let mut placements = fits_without(state, now, gang, open, needed, &victims)?;
    // Only pods on the chosen nodes can be in the way.
    let nodes: BTreeSet<&str> = placements.iter().map(|placed| placed.node.as_str()).collect();
    let near: Vec<Unit> = victims
        .iter()
        .filter(|unit| unit.nodes.iter().any(|node| nodes.contains(node.as_str())))
        .cloned()
        .collect();
    if let Some(again) = fits_without(state, now, gang, open, needed, &near) {
        (placements, victims) = (again, near);
    }
    // Spare the most valuable units first.
    let mut tried = 0;
    let mut place = victims.len();
    while place > 0 && tried < MOST_SPARED {
        place -= 1;
        tried += 1;
        let mut without = victims.clone();
        without.remove(place);
        if let Some(again) = fits_without(state, now, gang, open, needed, &without) {
            (placements, victims) = (again, without);
        }
    }
    Some((placements, victims))
}

fn fits_without(
    state: &mut State,
    now: Time,
    gang: &Gang,
    open: &[&Member],
    needed: usize,
    units: &[Unit],
) -> Option<Vec<Placement>> {
    set_aside(&mut state.world, units);
    let placed = place::place(state, now, gang, open, needed.max(1));
    put_back(&mut state.world, units);
    placed.ok().filter(|placements| !placements.is_empty())
}

fn set_aside(world: &mut World, units: &[Unit]) {
    for unit in units {
        world.cluster.set_aside(&unit.pods, &unit.claims);
        unit.nodes.iter().for_each(|node| world.fleet.mark(node));
    }
}

fn put_back(world: &mut World, units: &[Unit]) {
    for unit in units {
        world.cluster.put_back(&unit.pods, &unit.claims);
        unit.nodes.iter().for_each(|node| world.fleet.mark(node));
    }
}

/// Drops units whose eviction a PodDisruptionBudget forbids.
fn keep_to_budgets(world: &World, units: &mut Vec<Unit>) {
    let objects = world.cluster.objects();
    let mut left: BTreeMap<&Key, usize> = BTreeMap::new();
    for (key, budget) in &objects.budgets {
        left.insert(key, usize::try_from(budget.status.disruptions_allowed).unwrap_or(usize::MAX));
    }
    units.retain(|unit| {
        let mut taken: BTreeMap<&Key, usize> = BTreeMap::new();
        for pod in unit.pods.iter().filter_map(|key| objects.pods.get(key)) {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            for (key, _) in objects
                .budgets
                .iter()
                .filter(|(key, budget)| key.namespace == namespace && budget.selects(&labels))
            {
                *taken.entry(key).or_default() += 1;
            }
        }
        let is_allowed = taken.iter().all(|(key, count)| left.get(key).is_none_or(|left| count <= left));
        if is_allowed {
            for (key, count) in taken {
                left.entry(key).and_modify(|left| *left -= count);
            }
        }
        is_allowed
    });
}

/// Units of managed-card holders already terminating, or evictable and of lower priority than the gang. Excludes pods terminating
/// slowly: nobody can speed them up.
fn units(world: &World, ledger: &Ledger, gangs: &Gangs, now: Time, gang: &Gang) -> Vec<Unit> {
    let mut units: BTreeMap<Vec<Key>, Unit> = BTreeMap::new();
    let own: BTreeSet<&Key> = gang.members.iter().map(|member| &member.key).collect();
    for (holder, claims) in holders::holding_pods(world) {
        let pod = world.cluster.objects().pods.get(&holder);
        let takes_long = pod.is_some_and(|pod| pod.has_ended() && !ends_soon(pod, now));
        let may_be_of_a_gang = pod.is_some_and(|pod| order::may_be_of_a_gang(world, pod));
        if own.contains(&holder) || takes_long || may_be_of_a_gang {
            continue;
        }
        let pods = order::with_its_gang(world, gangs, &holder);
        let unit = units.entry(pods.clone()).or_insert_with(|| Unit {
            is_gang: gangs.of(&holder).is_some(),
            pods,
            claims: Vec::new(),
            priority: i32::MIN,
            created: None,
            nodes: BTreeSet::new(),
            is_leaving: true,
        });
        unit.claims.extend(claims);
    }
    let mut found = merged(units.into_values());
    found.retain_mut(|unit| {
        unit.claims.sort();
        unit.claims.dedup();
        for key in &unit.pods {
            let Some(pod) = world.cluster.objects().pods.get(key) else { return false };
            unit.priority = unit.priority.max(order::priority_of(world, gangs, key));
            unit.created = unit.created.clone().max(pod.metadata.creation_timestamp.clone());
            unit.nodes.extend(pod.node_name().map(str::to_owned));
            // A pod without a node may have devices.
            let claims = unit.claims.iter().filter_map(|claim| world.cluster.objects().claims.get(claim));
            unit.nodes.extend(claims.filter_map(|claim| claim.allocated_node()).map(str::to_owned));
            unit.is_leaving &= pod.has_ended();
            if !pod.has_ended() && ledger.evictions.is_refused(&reference(pod), now) {
                return false;
            }
        }
        unit.is_leaving || unit.priority < gang.priority()
    });
    found
}
