//! Nominated devices count as taken while the nominated pods wait for them.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use k8s_openapi::jiff::Timestamp;
use tessera_api::managed::Nomination;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::holders;
use crate::intent::Intent;
use crate::ledger::Ledger;
use crate::on_the_way::has_its_devices;
use crate::pod::reference;
use crate::state::State;
use crate::world::World;

/// Time allowed to victims beyond their grace to end and free their devices.
pub(crate) const KEPT: Time = Time::from_secs(600);

/// The longest grace waited for. Kubernetes sets no limit.
pub(crate) const LONGEST_GRACE: Time = Time::from_secs(24 * 3600);

/// The pod's nomination, if any.
pub(crate) fn nomination(pod: &Pod) -> Option<Nomination> {
    let text = pod.metadata.annotations.as_ref()?.get(tessera_api::managed::NOMINATION_ANNOTATION)?;
    Nomination::decode(text)
}

/// Whether the nomination counts now. Anyone able to change the pod may have written it, so the expiry is capped at our longest plus
/// slack for a replica's fast clock.
pub(crate) fn is_in_force(nomination: &Nomination, now: Time) -> bool {
    let until = at(nomination.until);
    until > now && until <= now + LONGEST_GRACE + 2 * KEPT
}

pub(crate) fn at(time: Timestamp) -> Time {
    Time::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

/// Runs `look` with the nominations of these pods lifted, so they can use their own devices; to all others these count as taken.
pub(crate) fn with_nominated(
    state: &mut State,
    now: Time,
    pods: &[(&Key, &Pod)],
    look: impl FnOnce(&mut State) -> Vec<Intent>,
) -> Vec<Intent> {
    let is_held = |state: &State, key: &Key| state.ledger.nominations.is_held(key);
    let held: Vec<&Key> = pods.iter().map(|(key, _)| *key).filter(|key| is_held(state, key)).collect();
    held.iter().for_each(|key| forget_nominated(&mut state.world, &mut state.ledger, key));
    let intents = look(state);
    pods.iter().for_each(|(key, pod)| hold_nominated(state, now, key, pod));
    if held.iter().any(|key| !is_held(state, key)) {
        state.ledger.nominations.set_freed();
    }
    intents
}

/// Counts the pod's nominated devices as taken, if any.
fn hold_nominated(state: &mut State, now: Time, key: &Key, pod: &Pod) {
    let nomination = match nomination(pod) {
        Some(seen) => {
            state.ledger.nominations.observed(key);
            Some(seen)
        }
        None => state.ledger.nominations.sent(&reference(pod), now).cloned(),
    };
    let Some(nomination) = nomination.filter(|nomination| is_in_force(nomination, now)) else {
        return;
    };
    // A pod with devices needs no others, whatever its annotation says.
    let has_devices =
        || has_its_devices(&tessera_cluster::subject::of_pod(state.world.cluster.objects(), pod));
    if state.ledger.pods.proposal(key).is_some() || pod.node_name().is_some() || has_devices() {
        return;
    }
    let results = nomination.devices.iter().map(|device| DeviceRequestAllocationResult {
        driver: state.world.driver.clone(),
        pool: holders::pool_of(&state.world, &nomination.node),
        device: device.clone(),
        ..DeviceRequestAllocationResult::default()
    });
    let results: Vec<_> = results.collect();
    state.world.cluster.nominate(key, pod, &nomination.node, &results);
    state.world.fleet.mark(&nomination.node);
    let until = at(nomination.until);
    let group = state.gangs.group_of(key);
    state.gangs.set_due(&group, until);
    state.ledger.nominations.hold(key, nomination.node);
}

/// Lifts the pod's nomination, so the pod itself can use the devices.
pub(crate) fn forget_nominated(world: &mut World, ledger: &mut Ledger, key: &Key) {
    if let Some(node) = ledger.nominations.lift(key) {
        if ledger.pods.proposal(key).is_none() {
            world.cluster.forget(key);
        }
        world.fleet.mark(&node);
    }
}
