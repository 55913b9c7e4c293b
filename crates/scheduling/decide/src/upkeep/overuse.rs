//! Evicts pods that hold more memory than their part before their neighbours fail, in pools that say so.

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::DeviceName;
use tessera_api::offer::OnOveruse;
use tessera_cluster::{ClaimExt, Key, PodExt};
use tessera_placement::Time;

use crate::holders;
use crate::intent::Intent;
use crate::overuse::{Overuse, endangering};
use crate::pod::reference;
use crate::state::State;
use crate::world::World;

/// Handles a changed or deleted claim: it may have begun or ceased to endanger others.
pub(crate) fn track(world: &World, overuse: &mut Overuse, now: Time, key: &Key) {
    let claim = world.cluster.objects().claims.get(key);
    let endangers = claim.is_some_and(|claim| !endangering(claim, &world.driver).is_empty());
    overuse.set(key, endangers, now);
}

/// Evicts the pods of claims that endanger others. The API server refuses what a disruption budget forbids.
pub(crate) fn evict(state: &mut State, now: Time) -> Vec<Intent> {
    if state.leadership.term.is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for key in state.overuse.take_due(now) {
        let objects = state.world.cluster.objects();
        let Some(claim) = objects.claims.get(&key) else { continue };
        let Some(why) = why_evicted(&state.world, claim) else { continue };
        let why = format!("its GpuPool evicts who holds the memory of others, and claim {}: {why}", key.name);
        let pods = holders::pods_holding(&key, claim).into_iter().filter_map(|pod| objects.pods.get(&pod));
        found.extend(pods.filter(|pod| !pod.has_ended()).map(|pod| (reference(pod), why.clone())));
    }
    let evictions = &mut state.ledger.evictions;
    found.retain(|(pod, _)| !evictions.is_refused(pod, now) && evictions.send(pod.clone(), None, now));
    found.into_iter().map(|(pod, why)| Intent::Evict { pod, why }).collect()
}

/// What the plugin says of the claim, if the pool of the card wants its pods gone for that.
fn why_evicted<'w>(world: &'w World, claim: &'w ResourceClaim) -> Option<&'w str> {
    let (_, report) = world.fleet.node(world.fleet.find(claim.allocated_node()?)?).report.as_ref()?;
    let evicts = |device: &str| {
        let card = device.parse::<DeviceName>().ok().and_then(|device| report.cards.get(&device.card()));
        card.is_some_and(|card| card.on_overuse == OnOveruse::Evict)
    };
    endangering(claim, &world.driver).into_iter().find(|(device, _)| evicts(device)).map(|(_, why)| why)
}
