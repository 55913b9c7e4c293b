//! Places of moved pods' successors: kept from all others from the plan on, until a successor has devices or the plan ends.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::managed::{Nomination, PlannedMove};
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::gathering::{Gathering, Place};
use crate::holders;
use crate::nominations::{at, is_in_force, nomination};
use crate::pod::reference;
use crate::refusals::owner;
use crate::state::State;
use crate::world::World;

/// The pod that moves, if it is still there.
pub(crate) fn mover<'w>(world: &'w World, planned: &PlannedMove) -> Option<&'w Arc<Pod>> {
    let (key, uid) = planned.pod.rsplit_once('/')?;
    let (namespace, name) = key.split_once('/')?;
    let pod = world.cluster.objects().pods.get(&Key::new(namespace, name))?;
    (pod.metadata.uid.as_deref() == Some(uid)).then_some(pod)
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
        if places.iter().any(|place| place.waiting == *waiting && place.planned == *planned) {
            continue;
        }
        let pod = mover(&state.world, planned).map(|pod| pod.as_ref().clone()).unwrap_or_default();
        places.push(Place {
            waiting: waiting.clone(),
            planned: planned.clone(),
            pod,
            until: at(nomination.until),
            is_held: false,
            is_over: false,
        });
    }
    hold(&mut state.world, &mut state.gathering);
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

/// Ends places whose time is over, and keeps those whose nodes were not known before.
pub(crate) fn follow(state: &mut State, now: Time) {
    if !state.gathering.places.is_empty() {
        end(state, |_, until| until <= now);
        hold(&mut state.world, &mut state.gathering);
    }
}

/// Runs `look` with the places for successors of these pods' owner lifted, one for each pod.
pub(crate) fn with_own<T>(state: &mut State, pods: &[(&Key, &Pod)], look: impl FnOnce(&mut State) -> T) -> T {
    if state.gathering.places.is_empty() {
        return look(state);
    }
    let mut own: Vec<(&Key, String, Key)> = Vec::new();
    for (key, pod) in pods.iter().filter(|(_, pod)| pod.node_name().is_none()) {
        let owner = owner(pod);
        let State { world, gathering, .. } = state;
        let mut places = gathering.places.iter_mut();
        if let Some(place) = places.find(|place| place.planned.owner == owner && place.is_held) {
            lift(world, place);
            own.push((*key, place.planned.pod.clone(), place.waiting.clone()));
        }
    }
    let looked = look(state);
    for (key, planned, waiting) in own {
        let has_devices = state.ledger.pods.proposal(key).is_some();
        let mut places = state.gathering.places.iter_mut();
        let place = places.find(|place| place.planned.pod == planned && place.waiting == waiting);
        if let Some(place) = place.filter(|_| has_devices) {
            place.is_over = true;
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
    for place in gathering.places.iter_mut().filter(|place| !place.is_held && !place.is_over) {
        let PlannedMove { node, devices, .. } = &place.planned;
        let pool = holders::pool_of(world, node);
        if pool.is_empty() {
            continue;
        }
        let results = devices.iter().map(|device| DeviceRequestAllocationResult {
            driver: world.driver.clone(),
            pool: pool.clone(),
            device: device.clone(),
            ..DeviceRequestAllocationResult::default()
        });
        let results: Vec<_> = results.collect();
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

/// In place of the successor's name, which is not known yet: no pod's name has blanks. Of no namespace, so that no quota counts it
/// beside the pod that moves.
fn holder(place: &Place) -> Key {
    Key::cluster(format!("successor of {}", place.planned.pod))
}
