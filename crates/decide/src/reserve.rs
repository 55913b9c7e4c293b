//! Positions in strict queues, and nodes reserved for the first long-waiting gang of a pool.

use std::collections::BTreeSet;

use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;

use crate::group::{Gang, Member};
use crate::queue::{Order, Who};
use crate::room::{self, largest};
use crate::state::State;
use crate::world::World;
use crate::{nodes, order};

/// A candidate for reservation, best first: earliest expected to be free, then fewest holders.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// When its cards are expected to be free; nodes with an unknown time sort last.
    free_at: (bool, Time),
    holders: usize,
    name: String,
    /// Number of pods with room on the empty node.
    pods: usize,
}

/// In pools with a strict queue, blocks cards for everyone behind this waiting pod or gang.
pub(crate) fn stand(state: &mut State, order: &Order, who: &Who, demand: &Demand) {
    let strict = state.world.fleet.strict(&state.world.cluster, &state.world.driver).pools.clone();
    if strict.is_empty() {
        return;
    }
    for pool in nodes::pools_asked(&mut state.world, demand).intersection(&strict) {
        state.standing.stand(pool, order, who);
    }
}

/// Keeps the queue position of a gang without room.
pub(crate) fn stand_as_gang(state: &mut State, gang: &Gang, open: &[&Member]) {
    if let Some(demand) = largest(open) {
        stand(
            state,
            &order::order_of(&state.world, &state.gangs, &gang.id),
            &Who::Gang(gang.id.clone()),
            demand,
        );
    }
}

/// Reserves nodes for a gang without room, if it has waited long enough. Returns an addition to its wait reason.
pub(crate) fn reserve_for(state: &mut State, now: Time, gang: &Gang, open: &[&Member]) -> Option<String> {
    let order = order::order_of(&state.world, &state.gangs, &gang.id);
    let demand = largest(open)?;
    let who = Who::Gang(gang.id.clone());
    let pools = nodes::pools_asked(&mut state.world, demand);
    let after = gang.newest() + reserve_after(&state.world, &pools);
    if now < after {
        state.gangs.set_due(&gang.id, after);
        return None;
    }
    let nodes = room::nodes_when_empty(state, demand, usize::MAX).filter(|nodes| !nodes.is_empty())?;
    if !state.standing.begin_to_reserve(&pools, &who) {
        return None;
    }
    let kept = |(index, pods): (NodeIndex, usize)| {
        let name = state.world.fleet.node(index).name.clone();
        let (free_at, holders) = room::free_at(state, &name);
        Kept { free_at, holders, name, pods }
    };
    let mut nodes: Vec<Kept> = nodes.into_iter().map(kept).collect();
    nodes.sort();
    let mut left = open.len();
    let kept = nodes.into_iter().take_while(|node| {
        let is_needed = left > 0;
        left = left.saturating_sub(node.pods);
        is_needed
    });
    let kept: Vec<Kept> = kept.collect();
    let is_known = kept.iter().all(|node| !node.free_at.0);
    let until = kept.iter().map(|node| node.free_at.1).max().filter(|_| is_known);
    let count = kept.len();
    for node in kept {
        state.standing.reserve(node.name, who.clone(), order.priority(), until);
    }
    let free = until.map_or_else(String::new, |until| {
        format!(", expected to be free in {} min", until.saturating_sub(now).as_secs() / 60)
    });
    Some(format!("nodes kept for it: {count}{free}"))
}

/// The shortest reservation delay among the gang's pools.
fn reserve_after(world: &World, pools: &BTreeSet<String>) -> Time {
    let cards =
        world.fleet.nodes().flat_map(|node| node.report.iter()).flat_map(|(_, report)| report.cards.values());
    let own = cards.filter(|card| card.pool.as_ref().is_some_and(|pool| pools.contains(pool)));
    let seconds = own.map(|card| card.placement.reserve_after_seconds).min();
    Time::from_secs(seconds.unwrap_or(tessera_api::gpu_pool::RESERVE_AFTER_SECONDS).into())
}
