//! Pods not bound in time, and annotations that outlive a restart.

use tessera_cluster::PodExt;
use tessera_placement::Time;

use crate::intent::Intent;
use crate::on_the_way::UNTIL_BOUND;
use crate::pod::reference;
use crate::state::State;
use crate::upkeep::unready;
use crate::{commit, paused, refusals};

/// Gives up nodes whose pods with devices were not bound in time.
pub(crate) fn give_up_overdue(state: &mut State, now: Time) {
    for key in state.ledger.pods.overdue(now) {
        let Some(pod) = state.world.cluster.objects().pods.get(&key).cloned() else { continue };
        if pod.is_refused() && pod.node_name().is_none() && !pod.is_gated() {
            commit::refused(state, now, &key, &pod);
        } else if paused::is_judged_by_nobody(&state.world, &state.waits, now, &pod) {
            paused::pause_unjudged(state, now, &pod);
        } else if let Some(managed) =
            state.ledger.pods.proposal_mut(&key).and_then(|proposal| proposal.managed.as_mut())
        {
            // kube-scheduler has not tried the pod yet.
            managed.due = now + UNTIL_BOUND;
        }
    }
}

/// Intents to persist refused nodes, evictions, and sizes of gangs that shrank for the next leader, on the pods.
pub(crate) fn note(state: &mut State) -> Vec<Intent> {
    let keys = std::mem::take(&mut state.marks.to_note);
    let pods = keys.iter().filter_map(|key| state.world.cluster.objects().pods.get(key));
    let notes = pods.map(|pod| {
        let owner = refusals::owner(pod);
        let (nodes, evictions) = (state.refusals.to_note(&owner), unready::evictions_of(&state.healing, pod));
        let formed = state.gangs.shrunk_to(&pod.key());
        let idle_evicted = state.successors.to_note(&reference(pod));
        Intent::Note { pod: reference(pod), nodes, evictions, formed, idle_evicted }
    });
    notes.collect()
}
