//! Groups kept from starting because their team's GPU hours are spent.

use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::take_limit::worths;

use crate::group::{Group, Member, Placement};
use crate::plan::Plan;
use crate::room;
use crate::state::State;
use crate::teams::{self, Allowance, Start};
use crate::world::World;

/// Why a budget forbids a new group's plan, if so.
pub(crate) fn over_budget(
    state: &mut State,
    now: Time,
    group: &Group,
    (open, needed): (&[&Member], usize),
    plan: &Plan<'_>,
) -> Option<String> {
    if !state.world.teams.has_budget(group.id.namespace()) {
        return None;
    }
    let (starts, begins): (Vec<Start>, bool) = match plan {
        Plan::Allocate(placements) => {
            (placements.iter().map(|placed| of_placed(&state.world, placed)).collect(), true)
        }
        // Nobody keeps a place, or has others evicted, for hours the team does not have.
        Plan::Steer { .. } => (at_least(state, open, needed), true),
        Plan::NoRoom(_) | Plan::OverLimit(_) => (at_least(state, open, needed), false),
        Plan::Leave(_) | Plan::Wait(_) => return None,
    };
    let world = &state.world;
    let mut reserved = std::mem::take(&mut state.round.reserved);
    let before = (!begins).then(|| reserved.clone());
    let is_exempt = teams::allowance(world, open) == Allowance::Unlimited;
    let who = (group.id.namespace(), is_exempt);
    let why = world.teams.over_budget(&world.cluster, &mut reserved, now, who, &starts);
    state.round.reserved = before.unwrap_or(reserved);
    why
}

fn of_placed(world: &World, placed: &Placement<'_>) -> Start {
    Start { cards: cards_of(world, placed), deadline: teams::deadline(&placed.member.pod) }
}

/// Millionths of a card that the pod gets.
pub(crate) fn cards_of(world: &World, placed: &Placement<'_>) -> u64 {
    let allocations = placed.fit.allocations.iter();
    let devices = allocations.flat_map(|allocation| worths(&world.cluster, &world.driver, allocation));
    devices.map(|(_, worth)| worth).sum::<Worth>().cards
}

/// The pods with the least hours, as many as have to start.
fn at_least(state: &mut State, open: &[&Member], needed: usize) -> Vec<Start> {
    let start = |member: &&Member| {
        let cards = member.demand.as_ref().map_or(0, |demand| room::least_cards(state, demand));
        Start { cards, deadline: teams::deadline(&member.pod) }
    };
    let mut starts: Vec<Start> = open.iter().map(start).collect();
    starts.sort_by_key(|start| u128::from(start.cards) * start.deadline.unwrap_or_default().as_millis());
    starts.truncate(needed.max(1));
    starts
}
