//! Holders of managed cards as units that may be evicted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::gang::GangId;
use tessera_cluster::usage::is_daemon;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::victims::Unit;

use super::Ask;
use crate::gangs::Gangs;
use crate::ledger::Ledger;
use crate::pod::{ends_soon, reference};
use crate::world::World;
use crate::{holders, order};

/// A gang with pods that may be evicted.
struct OfGang {
    /// Its bound pods, sorted.
    bound: Vec<Key>,
    /// Pods that give devices back by themselves.
    surplus: BTreeSet<Key>,
    priority: i32,
}

pub(super) fn has_no_claims(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()).next().is_none()
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

/// Units of holders of managed cards, and of pods without claims on nodes with such cards; each with whether all of its pods are
/// already ending. Excludes pods ending slowly, as nobody can speed them up, pods recently found unevictable, and pods that every node runs.
/// Of a gang that gives devices back the surplus is by itself; the gang's unit has the other claims, and all pods.
pub(super) fn units(
    world: &World,
    ledger: &Ledger,
    of_pods: &Gangs,
    now: Time,
    ask: Ask,
) -> Vec<(Unit, bool)> {
    let mut gangs: BTreeMap<&GangId, OfGang> = BTreeMap::new();
    let mut units: BTreeMap<Vec<Key>, Unit> = BTreeMap::new();
    for (holder, claims) in holders::holding_pods(world) {
        let pod = world.cluster.objects().pods.get(&holder);
        let takes_long = pod.is_some_and(|pod| pod.has_ended() && !ends_soon(pod, now));
        let may_be_of_a_gang = pod.is_some_and(|pod| order::may_be_of_a_gang(world, pod));
        if !takes_long && !may_be_of_a_gang {
            unit_of(world, of_pods, &holder, ask, &mut units, &mut gangs).claims.extend(claims);
        }
    }
    let known: BTreeSet<Key> = units.keys().flatten().cloned().collect();
    for (key, pod) in &world.cluster.objects().pods {
        let is_candidate = pod.node_name().is_some_and(|node| world.fleet.find(node).is_some())
            && !pod.has_ended()
            && has_no_claims(pod)
            && !is_daemon(pod)
            && !known.contains(key)
            && !order::may_be_of_a_gang(world, pod);
        if is_candidate {
            unit_of(world, of_pods, key, ask, &mut units, &mut gangs);
        }
    }
    let completed = |mut unit: Unit| {
        unit.claims.sort();
        unit.claims.dedup();
        let mut is_leaving = true;
        for key in &unit.pods {
            let pod = world.cluster.objects().pods.get(key)?;
            let of_gang = of_pods.of(key).and_then(|gang| gangs.get(gang));
            unit.priority = unit.priority.max(of_gang.map_or(pod.priority(), |gang| gang.priority));
            unit.created = unit.created.clone().max(pod.metadata.creation_timestamp.clone());
            is_leaving &= pod.has_ended();
            if !pod.has_ended() && ledger.evictions.is_refused(&reference(pod), now) {
                return None;
            }
        }
        Some((unit, is_leaving))
    };
    merged(units.into_values()).into_iter().filter_map(completed).collect()
}

/// The unit of the pod: with its gang, or alone.
fn unit_of<'d, 'u>(
    world: &'d World,
    of_pods: &'d Gangs,
    key: &Key,
    ask: Ask,
    units: &'u mut BTreeMap<Vec<Key>, Unit>,
    gangs: &mut BTreeMap<&'d GangId, OfGang>,
) -> &'u mut Unit {
    let (mut pods, is_gang) = match of_pods.of(key) {
        None => (Vec::new(), false),
        Some(gang) => {
            let pod = world.cluster.objects().pods.get(key);
            let is_bound = pod.is_some_and(|pod| pod.node_name().is_some() && !pod.has_ended());
            let of_gang = || OfGang {
                bound: order::with_its_gang(world, of_pods, key)
                    .into_iter()
                    .filter(|other| is_bound || other != key)
                    .collect(),
                surplus: match ask.is_of_own() {
                    true => BTreeSet::new(),
                    false => order::surplus_of(world, of_pods, gang),
                },
                priority: order::order_of(world, of_pods, gang).priority(),
            };
            let found = gangs.entry(gang).or_insert_with(of_gang);
            if found.surplus.contains(key) { (Vec::new(), false) } else { (found.bound.clone(), true) }
        }
    };
    if let Err(place) = pods.binary_search(key) {
        pods.insert(place, key.clone());
    }
    units.entry(pods.clone()).or_insert_with(|| Unit {
        is_gang,
        pods,
        claims: Vec::new(),
        priority: i32::MIN,
        created: None,
    })
}
