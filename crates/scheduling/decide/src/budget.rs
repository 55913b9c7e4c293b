//! Groups that may not start because their team's GPU hours are spent.

use tessera_cluster::worth::Worth;
use tessera_placement::Time;
use tessera_placement::take_limit::worths;

use crate::group::{Group, Placement};
use crate::plan::Plan;
use crate::state::State;
use crate::teams::{self, Start};

/// Why the plan of a group that has nothing yet may not be carried out, if a budget forbids it. Without a budget, `None`.
pub(crate) fn over_budget(state: &mut State, now: Time, group: &Group, plan: &Plan<'_>) -> Option<String> {
    let placements: &[Placement<'_>] = match plan {
        Plan::Allocate(placements) => placements,
        // Nobody keeps a place, or has others evicted, for hours that are not there.
        Plan::Steer { .. } | Plan::NoRoom(_) | Plan::OverLimit(_) => &[],
        Plan::Leave(_) | Plan::Wait(_) => return None,
    };
    let world = &state.world;
    let start = |placed: &Placement<'_>| {
        let allocations = placed.fit.allocations.iter();
        let devices = allocations.flat_map(|allocation| worths(&world.cluster, &world.driver, allocation));
        Start {
            cards: devices.map(|(_, worth)| worth).sum::<Worth>().cards,
            deadline: teams::deadline(&placed.member.pod),
        }
    };
    let starts: Vec<Start> = placements.iter().map(start).collect();
    let reserved = &mut state.round.reserved;
    world.teams.over_budget(&world.cluster, reserved, now, group.id.namespace(), &starts)
}
