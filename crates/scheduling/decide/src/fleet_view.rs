//! The fleet for display, collected one node at a time so as not to block on a large fleet.

use std::collections::BTreeMap;

use tessera_cluster::gang::GangId;
use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;

use crate::order;
use crate::queue::Order;
use crate::state::State;
use crate::teams::{self, Place, TeamId};
use crate::unplaced::{self, Unplaced, is_waiting};
use crate::view::{self, FleetSnapshot, ViewPass};
use crate::wait_reason::WaitReason;
use crate::world::World;

/// Adds the next node to the view; `false` once complete. Each node is shown as of its turn.
pub(crate) fn view_next(world: &mut World, pass: &mut ViewPass) -> bool {
    if pass.next as usize >= world.fleet.len() {
        return false;
    }
    let node = view::of_node(&mut world.fleet, pass.next, &world.cluster, &world.driver);
    pass.next += 1;
    // Slices of a deleted node stay for a while.
    if !node.cards.is_empty() {
        pass.nodes.push(node);
    }
    true
}

/// Ends a pass: its nodes, and the pods waiting now.
#[must_use]
pub(crate) fn finish_view(state: &State, pass: ViewPass, now: Time) -> FleetSnapshot {
    let mut of_gangs: BTreeMap<&GangId, Order> = BTreeMap::new();
    let mut places: BTreeMap<TeamId, Place> = BTreeMap::new();
    let mut waiting = Vec::new();
    for (key, why) in waiting_pods(state) {
        let pod = state.world.cluster.objects().pods.get(key).map(AsRef::as_ref);
        let gang = state.gangs.of(key);
        let order = match gang {
            Some(gang) => of_gangs
                .entry(gang)
                .or_insert_with(|| order::order_of(&state.world, &state.gangs, gang))
                .clone(),
            None => Order::of_gang(pod.into_iter(), 1, 0),
        };
        let team = state.world.teams.team_of(&key.namespace);
        let place =
            || *places.entry(team).or_insert_with(|| state.world.teams.place(&state.world.cluster, team));
        let is_exempt = order::is_exempt(&state.world, &state.gangs, &state.gangs.group_of(key));
        let order = order.of_team((!is_exempt).then(place));
        let text = state.waits.shape_text(key);
        let waits = view::waiting_pod(key, pod, gang, why.to_owned(), pools_of_shape(&state.unplaced, text));
        waiting.push((Some(order), waits));
    }
    for (key, text) in unplaced::unplaced(&state.world, &state.ledger, &state.waits, &state.unplaced) {
        let Some(pod) = state.world.cluster.objects().pods.get(key) else { continue };
        // kube-scheduler's order among them is unknown.
        let pools = pools_of_shape(&state.unplaced, Some(text));
        let mut waits = view::waiting_pod(key, Some(pod), None, unplaced::reason(pod), pools);
        waits.priority = pod.priority();
        waiting.push((None, waits));
    }
    let (at, leads) = (now.as_secs(), state.leadership.term.is_some());
    // Who does not lead follows no quotas.
    let teams = if leads { teams::views(state) } else { Vec::new() };
    FleetSnapshot { at, leads, nodes: pass.nodes, waiting, teams }
}

/// Pods with our gate, and pods without devices of managed cards, each with its reason for waiting.
pub(crate) fn waiting_pods(state: &State) -> impl Iterator<Item = (&Key, &str)> {
    let ours = state.waits.pods().filter(|key| is_waiting(&state.world, &state.waits, key));
    ours.map(|key| (key, state.waits.reason(key).map_or("", WaitReason::text)))
}

fn pools_of_shape(unplaced: &Unplaced, text: Option<&str>) -> Vec<String> {
    let pools = text.and_then(|text| unplaced.pools_by_shape.get(text));
    pools.into_iter().flatten().cloned().collect()
}
