//! Devices that kube-scheduler will choose for pods in flight, predicted again when other claims took them.

use tessera_cluster::{Key, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::statement::with_devices;

use crate::state::State;
use crate::{nodes, on_the_way, selector_costs};

/// Adopts pods already on their way, released by another replica or before a restart.
pub(crate) fn adopt(state: &mut State) {
    // Pods without a fit stay listed: an obstacle may have disappeared unobserved.
    let adopted: Vec<Key> = state.ledger.pods.adopted().cloned().collect();
    for key in adopted {
        let Some(pod) = state.world.cluster.objects().pods.get(&key).cloned() else { continue };
        let Some(node) = pod.nominated_node().map(str::to_owned) else {
            continue;
        };
        let Ok(demand) = Demand::of(state.world.cluster.objects(), &pod) else { continue };
        if demand.is_open()
            && demand.obstacle().is_none()
            && selector_costs::unanswered(&mut state.world, &mut state.round, &demand).is_none()
            && let Some(fit) = nodes::fit_by_scheduler(&mut state.world, &demand, &node)
        {
            on_the_way::send(&mut state.world, &mut state.ledger, &key, &pod, &demand, &node, fit);
        }
    }
}

/// Reassigns assumed devices of pods on their way if another claim got them: kube-scheduler takes pods in its own order.
pub(crate) fn assume_anew(state: &mut State) {
    let mut nodes = std::mem::take(&mut state.guesses.reallocated);
    if !state.waits.is_passed(state.world.fleet.now()) {
        nodes.append(&mut state.guesses.crowded);
    }
    let mut open = Vec::new();
    for (key, node) in state.ledger.pods.open_on(&nodes) {
        let Some(pod) = state.world.cluster.objects().pods.get(&key) else { continue };
        let Ok(demand) = Demand::of(state.world.cluster.objects(), pod) else { continue };
        // Otherwise the pod keeps its assumed devices until its selectors are evaluated.
        if demand.obstacle().is_none()
            && state.world.cluster.answer_ahead(demand.claims(), &mut 0, &mut state.world.asker).is_ok()
        {
            open.push((key, node, demand));
        }
    }
    open.iter().for_each(|(key, ..)| state.world.cluster.forget_claims(key));
    for (key, node, demand) in open {
        let Some(object) = state.world.cluster.objects().node(&node) else { continue };
        let (wanted, claims) = demand.on(object);
        if let Ok(Some(allocations)) = state.world.cluster.plan(object, &claims, &mut state.world.asker) {
            let claims = with_devices(&wanted, allocations);
            // Cannot fail: the allocator wrote the quantities.
            let _ = state.world.cluster.assume_claims(&key, claims);
        } else {
            state.guesses.crowded.insert(node.clone());
        }
        state.world.fleet.mark(&node);
    }
}
