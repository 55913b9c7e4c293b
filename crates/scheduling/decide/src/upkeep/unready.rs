//! Handles devices failing preparation: their cards are avoided for a while, and pods with a controller are evicted, so their
//! replacements get other devices.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::device_status::EVICTIONS_ANNOTATION;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use crate::healing::{self, AVOIDED, Healing, MOST_EVICTIONS};
use crate::holders::{self, reference_of};
use crate::intent::{Intent, PodReference};
use crate::leadership::{self, Leadership};
use crate::ledger::{Ledger, OwnerCount};
use crate::marks::Marks;
use crate::pod::reference;
use crate::refusals;
use crate::state::State;
use crate::world::World;

/// Count from the pod's annotation. Anybody allowed to change the pod may have written the annotation.
fn noted_evictions(pod: &Pod) -> u32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(EVICTIONS_ANNOTATION)?.parse().ok()).unwrap_or(0)
}

pub(crate) fn has_controller(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}

/// Handles a changed or deleted claim: its devices may have failed.
pub(crate) fn track_failure(world: &World, healing: &mut Healing, now: Time, key: &Key) {
    let claim = world.cluster.objects().claims.get(key);
    let ours = claim.filter(|claim| holders::is_allocated_by_us(world, claim));
    match ours.and_then(|claim| healing::unready(claim, &world.driver)) {
        Some(unready) => healing.add_failing(key, now, unready.since.min(now) + healing.after),
        None => healing.remove_failing(key),
    }
}

/// Acts on devices failing preparation for too long.
pub(crate) fn heal(state: &mut State, now: Time) -> Vec<Intent> {
    state.world.fleet.forget_avoided(now);
    if state.leadership.term.is_none() {
        return Vec::new();
    }
    let mut intents = Vec::new();
    for (key, since) in state.healing.take_due(now) {
        let Some(claim) = state.world.cluster.objects().claims.get(&key).cloned() else { continue };
        let Some(unready) = healing::unready(&claim, &state.world.driver) else { continue };
        if let Some(node) = claim.allocated_node() {
            state.world.fleet.avoid(node, &unready.cards, now + AVOIDED);
        }
        // A card failing since before a restart is avoided at once. Evictions do not rely on a node's clock.
        if since + state.healing.after > now {
            continue;
        }
        if holders::is_unused(&state.world, &claim) {
            if leadership::refusal_of(&state.leadership, &claim).is_none() && state.ledger.claims.clear(&key)
            {
                let why = format!("cannot be prepared: {}", unready.why);
                intents.push(Intent::Clear { pod: None, claims: vec![reference_of(&claim)], why });
            }
            continue;
        }
        let minutes = now.saturating_sub(since).as_secs() / 60;
        for (pod, owner, before) in to_evict(&state.world, &state.ledger, &state.healing, now, &key, &claim) {
            let count = OwnerCount { owner, evictions: before + 1 };
            state.ledger.evictions.send(pod.clone(), Some(count), now);
            let why = format!(
                "its devices cannot be prepared since {minutes} min, so that another pod may get others: {}",
                unready.why
            );
            intents.push(Intent::Evict { pod, why });
        }
    }
    intents
}

/// Pending pods holding the claim whose controller will replace them, each with its owner and the owner's previous evictions.
fn to_evict(
    world: &World,
    ledger: &Ledger,
    healing: &Healing,
    now: Time,
    key: &Key,
    claim: &ResourceClaim,
) -> Vec<(PodReference, String, u32)> {
    let pods = claim.users().iter().filter_map(|user| {
        let pod = world.cluster.objects().pods.get(&key.with_name(&user.name))?;
        (pod.metadata.uid.as_ref() == Some(&user.uid)).then_some(pod)
    });
    let stuck = pods
        .filter(|pod| pod.phase() == Some("Pending") && !pod.has_ended() && has_controller(pod))
        .map(|pod| (reference(pod), refusals::owner(pod), evictions_of(healing, pod)));
    stuck.filter(|(pod, _, before)| *before < MOST_EVICTIONS && !ledger.evictions.is_sent(pod, now)).collect()
}

/// Number of evicted pods of the pod's owner, from this process or the pod's annotation.
pub(crate) fn evictions_of(healing: &Healing, pod: &Pod) -> u32 {
    healing.evictions(&refusals::owner(pod)).max(noted_evictions(pod))
}

/// Schedules a note of the owner's evictions on the pod if its annotation shows fewer.
pub(crate) fn mark_evictions(
    leadership: &Leadership,
    marks: &mut Marks,
    healing: &Healing,
    key: &Key,
    pod: &Pod,
) {
    if leadership.term.is_some() && !pod.has_ended() && evictions_of(healing, pod) > noted_evictions(pod) {
        marks.to_note.insert(key.clone());
    }
}
