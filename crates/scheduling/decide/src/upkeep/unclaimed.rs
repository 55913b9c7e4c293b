//! Deallocates claims without a remaining pod: claims created by users, since a pod's own claims are deleted with the pod.

use k8s_openapi::api::core::v1::Pod;
use tessera_cluster::{Key, PodExt};

use crate::holders::{self, reference_of};
use crate::intent::Intent;
use crate::leadership::{self, Leadership};
use crate::marks::Marks;
use crate::state::State;

/// Deallocates claims no pod will use.
pub(crate) fn clear_unclaimed(state: &mut State) -> Vec<Intent> {
    if state.leadership.term.is_none() {
        return Vec::new();
    }
    let mut intents = Vec::new();
    for name in std::mem::take(&mut state.marks.unclaimed) {
        let Some(claim) = state.world.cluster.objects().claims.get(&name) else { continue };
        let mut owners = claim.metadata.owner_references.iter().flatten();
        let is_refused = leadership::refusal_of(&state.leadership, claim).is_some();
        let is_of_pod = owners.any(|owner| owner.kind == "Pod");
        if is_refused
            || !holders::is_unused(&state.world, claim)
            || is_of_pod
            || holders::has_pod(&state.world, &name)
        {
            continue;
        }
        let claims = vec![reference_of(claim)];
        if state.ledger.claims.clear(&name) {
            let why = "no pod that uses the claim is left".to_owned();
            intents.push(Intent::Clear { pod: None, claims, why });
        }
    }
    intents
}

/// Handles a deleted or finished pod: its claims may have no pod left.
pub(crate) fn mark_claims_of_ended(leadership: &Leadership, marks: &mut Marks, pod: &Pod) {
    if leadership.term.is_none() {
        return;
    }
    let namespace = Key::from(&pod.metadata).namespace;
    marks.unclaimed.extend(pod.claim_names().map(|name| Key::new(&namespace, name)));
}
