//! Places of moved pods' successors: kept from all others from the plan on, until a successor has devices or the plan ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::kueue::ROOM_OF_ANNOTATION;
use tessera_api::managed::{Nomination, PlannedMove};
use tessera_cluster::{ClaimExt, Key, PodExt, subject};
use tessera_placement::Time;

use crate::gathering::{Gathering, Place};
use crate::holders;
use crate::idle::successors::pod_named;
use crate::intent::PodReference;
use crate::ledger::Ledger;
use crate::nominations::{at, is_in_force, nomination};
use crate::on_the_way::has_its_devices;
use crate::pod::reference;
use crate::refusals::owner;
use crate::state::State;
use crate::world::World;

/// The pod that moves, if it is still there.
pub(crate) fn mover<'w>(world: &'w World, planned: &PlannedMove) -> Option<&'w Arc<Pod>> {
    let PodReference { key, uid } = pod_named(&planned.pod)?;
    let pod = world.cluster.objects().pods.get(&key)?;
    (pod.metadata.uid.as_ref() == Some(&uid)).then_some(pod)
}

/// The devices of a place; `None` while its node is not known.
pub(crate) fn results(world: &World, planned: &PlannedMove) -> Option<Vec<DeviceRequestAllocationResult>> {
    let PlannedMove { node, devices, .. } = planned;
    let pool = holders::pool_of(world, node);
    let results = devices.iter().map(|device| DeviceRequestAllocationResult {
        driver: world.driver.clone(),
        pool: pool.clone(),
        device: device.clone(),
        ..DeviceRequestAllocationResult::default()
    });
    (!pool.is_empty()).then(|| results.collect())
}

/// Handles an observed pod, or `None` for a deleted one: the places of its plan are kept, or no longer.
pub(crate) fn track(state: &mut State, now: Time, key: &Key, pod: Option<&Pod>) {
    let planned = pod.filter(|pod| !pod.has_ended()).and_then(nomination);
    match planned.filter(|planned| is_in_force(planned, now)) {
        Some(planned) => keep(state, key, &planned),
        None => {
            let sent = |pod: &Pod| state.ledger.nominations.sent(&reference(pod), now).is_some();
            if !pod.is_some_and(sent) {
                release(state, key);
            }
        }
    }
}

/// Keeps the places of the plan for this waiting pod.
pub(crate) fn keep(state: &mut State, waiting: &Key, nomination: &Nomination) {
    for planned in &nomination.moves {
        let places = &mut state.gathering.places;
        let known = places.iter_mut().find(|place| place.waiting == *waiting && place.planned == *planned);
        if let Some(place) = known {
            place.until = place.until.max(at(nomination.until));
            continue;
        }
        let pod = mover(&state.world, planned).map(|pod| pod.as_ref().clone()).unwrap_or_default();
        places.push(Place {
            waiting: waiting.clone(),
            planned: planned.clone(),
            pod,
            until: at(nomination.until),
            is_held: false,
            is_charged: false,
            taken_by: None,
        });
    }
    hold(&mut state.world, &mut state.gathering);
}

/// Keeps a place for a future pod.
pub(crate) fn keep_room(state: &mut State, waiting: Key, planned: PlannedMove, pod: Pod, until: Time) {
    let (is_held, is_charged, taken_by) = (false, true, None);
    state.gathering.places.push(Place { waiting, planned, pod, until, is_held, is_charged, taken_by });
    hold(&mut state.world, &mut state.gathering);
}

/// Owners of the places open to the pod: its own, and the Workload named on it.
fn owners(pod: &Pod) -> [Option<String>; 2] {
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(ROOM_OF_ANNOTATION));
    let workload = annotation.map(|named| format!("{}/{named}", pod.key().namespace));
    [Some(owner(pod)), workload]
}

/// Keeps the places planned for this pod no longer, but for those of pods sent away already.
pub(crate) fn release(state: &mut State, waiting: &Key) {
    if state.gathering.places.is_empty() {
        return;
    }
    let is_sent_away = |gathering: &Gathering, place: &Place| {
        let uid = place.planned.pod.rsplit('/').next().unwrap_or_default();
        gathering.is_sent_away(&place.planned.owner, uid)
    };
    let ends: Vec<bool> = state
        .gathering
        .places
        .iter()
        .map(|place| place.waiting == *waiting && !is_sent_away(&state.gathering, place))
        .collect();
    end(state, |place, _| ends[place]);
}

/// Ends places whose time is over, keeps ones whose nodes were unknown before, and charges to quotas ones whose pods are gone.
pub(crate) fn follow(state: &mut State, now: Time) {
    if state.gathering.forget_staying(state.world.cluster.objects(), now) {
        let waiting: BTreeSet<Key> =
            state.gathering.places.iter().map(|place| place.waiting.clone()).collect();
        // Places of Workloads have no namespace, and end with the quota.
        for key in waiting.into_iter().filter(|key| !key.namespace.is_empty()) {
            let pod = state.world.cluster.objects().pods.get(&key).cloned();
            track(state, now, &key, pod.as_deref());
        }
    }
    if state.gathering.places.is_empty() {
        return;
    }
    end(state, |_, until| until <= now);
    let State { world, gathering, ledger, .. } = state;
    for place in &mut gathering.places {
        if place.taken_by.as_ref().is_some_and(|pod| has_lost_devices(world, ledger, pod)) {
            place.taken_by = None;
        }
    }
    for place in gathering.places.iter_mut().filter(|place| !place.is_charged) {
        if is_left(world, &place.planned) {
            if place.is_held {
                lift(world, place);
            }
            place.is_charged = true;
        }
    }
    hold(world, gathering);
}

/// Whether the devices of a waiting pod were not written after all.
fn has_lost_devices(world: &World, ledger: &Ledger, key: &Key) -> bool {
    let objects = world.cluster.objects();
    let Some(pod) = objects.pods.get(key).filter(|pod| pod.node_name().is_none()) else { return false };
    ledger.pods.proposal(key).is_none() && !has_its_devices(&subject::of_pod(objects, pod))
}

/// Whether the moving pod is gone, and holds no claim.
fn is_left(world: &World, planned: &PlannedMove) -> bool {
    let Some(PodReference { key, .. }) = pod_named(&planned.pod) else { return true };
    let claims = world.cluster.objects().claims.range(key.with_name("")..);
    let mut claims = claims.take_while(|(claim, _)| claim.namespace == key.namespace);
    mover(world, planned).is_none()
        && !claims
            .any(|(name, claim)| claim.has_devices() && holders::pods_holding(name, claim).contains(&key))
}

/// Runs `look` with the places kept for these pods lifted, one for each pod without devices.
pub(crate) fn with_own<T>(state: &mut State, pods: &[(&Key, &Pod)], look: impl FnOnce(&mut State) -> T) -> T {
    if state.gathering.places.is_empty() {
        return look(state);
    }
    let mut own: Vec<(&Key, String, Key)> = Vec::new();
    let has_devices = |state: &State, key: &Key| state.ledger.pods.proposal(key).is_some();
    for (key, pod) in pods.iter().filter(|(_, pod)| pod.node_name().is_none()) {
        if has_devices(state, key) {
            continue;
        }
        let owners = owners(pod);
        let State { world, gathering, .. } = state;
        let mut places = gathering.places.iter_mut();
        let is_own = |place: &Place| owners.iter().flatten().any(|owner| *owner == place.planned.owner);
        if let Some(place) = places.find(|place| is_own(place) && place.is_held) {
            lift(world, place);
            own.push((*key, place.planned.pod.clone(), place.waiting.clone()));
        }
    }
    let looked = look(state);
    for (key, planned, waiting) in own {
        let has_devices = has_devices(state, key);
        let mut places = state.gathering.places.iter_mut();
        let place = places.find(|place| place.planned.pod == planned && place.waiting == waiting);
        if let Some(place) = place.filter(|_| has_devices) {
            place.taken_by = Some(key.clone());
            state.ledger.nominations.set_freed();
        }
    }
    hold(&mut state.world, &mut state.gathering);
    looked
}

fn end(state: &mut State, ends: impl Fn(usize, Time) -> bool) {
    let State { world, gathering, ledger, .. } = state;
    let mut number = 0;
    gathering.places.retain_mut(|place| {
        let is_over = ends(number, place.until);
        number += 1;
        if is_over && place.is_held {
            lift(world, place);
            ledger.nominations.set_freed();
        }
        !is_over
    });
}

/// Counts the devices of places as taken, where their nodes are known.
fn hold(world: &mut World, gathering: &mut Gathering) {
    for place in gathering.places.iter_mut().filter(|place| !place.is_held && place.taken_by.is_none()) {
        let Some(results) = results(world, &place.planned) else { continue };
        let node = &place.planned.node;
        world.cluster.nominate(&holder(place), &place.pod, node, &results);
        world.fleet.mark(node);
        place.is_held = true;
    }
}

fn lift(world: &mut World, place: &mut Place) {
    world.cluster.forget(&holder(place));
    world.fleet.mark(&place.planned.node);
    place.is_held = false;
}

/// In place of the successor's name, unknown yet: no pod's name has blanks. Of no namespace while the moving pod is there,
/// so that no quota counts both.
fn holder(place: &Place) -> Key {
    let name = format!("successor of {}", place.planned.pod);
    match place.planned.pod.split_once('/').filter(|_| place.is_charged) {
        Some((namespace, _)) => Key::new(namespace, name),
        None => Key::cluster(name),
    }
}
