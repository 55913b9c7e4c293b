//! Positions in strict queues, and nodes reserved for the first long-waiting gang of a pool.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use tessera_cluster::{Key, PodExt};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fleet::NodeIndex;

use crate::gangs::Gangs;
use crate::group::{Group, Member};
use crate::pod::ends_soon;
use crate::queue::{Judged, Kept, Queue};
use crate::room::{self, largest};
use crate::state::State;
use crate::world::World;
use crate::{nodes, order};

/// A candidate for reservation, best first: earliest expected to be free, then fewest holders.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// When its cards are expected to be free; nodes with an unknown time sort last.
    free_at: (bool, Time),
    holders: usize,
    name: String,
    /// Number of pods with room on the empty node.
    pods: usize,
}

/// In pools with a strict queue, blocks cards for everyone behind this group.
pub(crate) fn stand(state: &mut State, group: &Group, open: &[&Member]) {
    let strict = state.world.fleet.strict(&state.world.cluster, &state.world.driver).pools.clone();
    let (false, Some(demand)) = (strict.is_empty(), largest(open)) else { return };
    let Some(order) = order::order_of_group(&state.world, &state.gangs, &group.id) else { return };
    for pool in nodes::pools_asked(&mut state.world, demand).intersection(&strict) {
        state.standing.stand(pool, &order, &group.id);
    }
}

/// Reserves nodes for a gang without room, if it has waited long enough. Returns an addition to its wait reason.
pub(crate) fn reserve_for(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&Member],
    needed: usize,
) -> Option<String> {
    let demand = largest(open)?;
    let who = &group.id;
    let pools = nodes::pools_asked(&mut state.world, demand);
    let order = order::order_of_group(&state.world, &state.gangs, who)?;
    let after = order.since() + reserve_after(&state.world, &pools);
    if now < after {
        state.gangs.set_due(&group.id, after);
        return None;
    }
    if let Some(paused) = state.standing.reservations.paused(who, now) {
        return Some(keeps_nothing(&mut state.gangs, now, group, paused));
    }
    let nodes = room::nodes_when_empty(state, demand, usize::MAX).filter(|nodes| !nodes.is_empty())?;
    if !state.standing.reservations.is_first(&pools, who) {
        return None;
    }
    let mut nodes = candidates_to_reserve(state, now, group, demand, nodes);
    nodes.sort();
    let mut left = open.len();
    nodes.retain(|node| {
        let is_needed = left > 0;
        left = left.saturating_sub(node.pods);
        is_needed
    });
    let alike = open.iter().filter_map(|member| member.demand.as_ref());
    let alike = alike.filter(|other| other.shape == demand.shape).count();
    let needed = needed.saturating_sub(open.len() - alike);
    let pods = nodes.iter().map(|node| node.pods).fold(0, usize::saturating_add);
    if nodes.is_empty() || pods < needed {
        let why = "no nodes are kept for it: on those with free cards pods without cards are in its way";
        return Some(why.to_owned());
    }
    let is_known = nodes.iter().all(|node| !node.free_at.0);
    let until = nodes.iter().map(|node| node.free_at.1).max().filter(|_| is_known);
    let holders = nodes.iter().map(|node| node.holders).sum();
    let count = nodes.len();
    let nodes = nodes.into_iter().map(|node| node.name).collect();
    let kept = Kept { nodes, priority: order.priority(), until, holders };
    match state.standing.reservations.reserve(who, &pools, kept, now) {
        Judged::Reserved(again) => {
            state.gangs.set_due(&group.id, again);
            let free = until.map_or_else(String::new, |until| {
                format!(", expected to be free in {} min", until.saturating_sub(now).as_secs() / 60)
            });
            Some(format!("nodes kept for it: {count}{free}"))
        }
        ended => Some(keeps_nothing(&mut state.gangs, now, group, ended)),
    }
}

/// Schedules the next reservation after a pause, and returns the reason for the pause.
fn keeps_nothing(gangs: &mut Gangs, now: Time, group: &Group, paused: Judged) -> String {
    let (Judged::NoUse(until) | Judged::TooLong(until) | Judged::Reserved(until)) = paused;
    gangs.set_due(&group.id, until);
    let minutes = until.saturating_sub(now).as_secs().div_ceil(60);
    let why = match paused {
        Judged::NoUse(_) => "those kept were free, and it did not fit all the same; others pass it",
        _ => "those kept did not become free for long",
    };
    format!("no nodes are kept for it for {minutes} min: {why}")
}

/// Whether others pass the group, because free nodes reserved for it were of no use.
pub(crate) fn is_passed(standing: &Queue, now: Time, group: &Group) -> bool {
    standing.reservations.is_passed(&group.id, now)
}

/// Of these nodes, those useful to reserve: with cards to become free, with room now, or with room soon.
fn candidates_to_reserve(
    state: &mut State,
    now: Time,
    group: &Group,
    demand: &Demand,
    nodes: Vec<(NodeIndex, usize)>,
) -> Vec<Candidate> {
    let own: BTreeSet<Key> = group.members.iter().map(|member| member.key.clone()).collect();
    let fit_now: BTreeSet<NodeIndex> =
        nodes::ranked(&mut state.world, demand).ranking.best().map(|(_, index)| index).collect();
    let pods = state.world.cluster.objects().pods.values();
    let ending = LazyCell::new(|| {
        let ending = pods.filter(|pod| ends_soon(pod, now)).filter_map(|pod| pod.node_name());
        ending.collect::<BTreeSet<&str>>()
    });
    let candidate = |(index, pods): (NodeIndex, usize)| {
        let name = state.world.fleet.node(index).name.clone();
        let (free_at, holders) = room::free_at(state, &name, &own);
        let is_useful = holders > 0 || fit_now.contains(&index) || ending.contains(name.as_str());
        is_useful.then_some(Candidate { free_at, holders, name, pods })
    };
    nodes.into_iter().filter_map(candidate).collect()
}

/// The shortest reservation delay among the gang's pools.
pub(crate) fn reserve_after(world: &World, pools: &BTreeSet<String>) -> Time {
    let cards =
        world.fleet.nodes().flat_map(|node| node.report.iter()).flat_map(|(_, report)| report.cards.values());
    let own = cards.filter(|card| card.pool.as_ref().is_some_and(|pool| pools.contains(pool)));
    let seconds = own.map(|card| card.placement.reserve_after_seconds).min();
    Time::from_secs(seconds.unwrap_or(tessera_api::gpu_pool::RESERVE_AFTER_SECONDS).into())
}
