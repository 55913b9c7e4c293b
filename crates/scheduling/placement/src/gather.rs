//! Pods to move so that another fits, each with its new place.
//!
//! ```text
//! movers by node ─> devices whose holders lose least ─> sets of movers by cost ─> set aside, wanted pod placed, movers placed elsewhere
//! ```
//!
//! The first set in the order of cost with a place for everybody is the plan. Cost is the lost running time of cards, then the number
//! of pods. A set has movers of the wanted pod's node only, and gangs as a whole; nobody moves to make room for a mover. At most
//! [`MOST_SETS`] sets are tried.

mod choice;
mod movers;
mod search;

use crate::fit::Takes;
use crate::fleet::NodeIndex;
use crate::seats::Seat;
use crate::statement::Statement;
pub use movers::{HeldDevice, Mover, Runner, Stays, movers};
use search::Search;

/// Limit on sets of movers tried in vain.
pub const MOST_SETS: usize = 256;

/// Running time gained by moves for each unit lost, at least. Ten, not five: at most a fifth of the time accepted in addition is lost
/// in the long run (`cargo xtask bench mig-order --gather`), since a request placed by a move often keeps another out later.
pub const GAINED_FOR_LOST: u32 = 10;

/// What has to fit.
#[derive(Clone, Copy)]
pub enum Wanted<'w> {
    /// A pod.
    Seat(Seat<'w>),
    /// A node with no device in use.
    EmptyNode,
}

/// A mover's pod in its new place.
#[derive(Debug)]
pub struct Move {
    /// Index of the mover.
    pub mover: usize,
    /// Index of the pod among those of the mover.
    pub pod: usize,
    /// Its new node.
    pub node: NodeIndex,
    /// Its devices there.
    pub takes: Takes,
}

/// A place for what is wanted.
#[derive(Debug)]
pub struct Plan {
    /// The node.
    pub node: NodeIndex,
    /// The wanted pod's devices; `None` for an empty node.
    pub takes: Option<Takes>,
    /// The moves to make first; empty if there is room already. One may need the devices that another leaves.
    pub moves: Vec<Move>,
}

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlan {
    /// No node could take the pod even if nobody held devices.
    NoNode,
    /// Pods that stay are in the way on each node.
    Stay,
    /// Those that would have to move find no other place.
    NoPlace,
    /// As [`Self::NoPlace`] for the [`MOST_SETS`] cheapest sets; more exist.
    TooMany,
}

/// The answer.
#[derive(Debug)]
pub struct Gathered {
    /// The plan, or why there is none.
    pub plan: Result<Plan, NoPlan>,
    /// Indices of movers that stay, and are in the way where fewer would otherwise have to move.
    pub staying: Vec<usize>,
}

/// Running time of cards lost by the moves of these plans: thousandths of a card, times seconds.
pub fn lost(plans: &[Plan], movers: &[Mover]) -> u64 {
    let moves = plans.iter().flat_map(|plan| &plan.moves);
    moves.map(|moved| movers[moved.mover].pods[moved.pod].lost).fold(0, u64::saturating_add)
}

/// Whether moves may lose so much running time for so much gained, in the same unit.
pub fn is_worth(lost: u64, gained: u64) -> bool {
    lost.saturating_mul(GAINED_FOR_LOST.into()) <= gained
}

/// The cheapest moves after which there is room. The statement is afterwards as before.
pub fn plan(statement: &mut Statement<'_>, wanted: Wanted<'_>, movers: &[Mover]) -> Gathered {
    Search::new(statement, wanted, movers).run()
}

/// The cheapest moves for one of these pods after the other, each with those before it in their places; `None` if one finds no room.
/// Nobody moves twice. The statement is afterwards as before.
pub fn plan_all(statement: &mut Statement<'_>, seats: &[Seat<'_>], movers: &[Mover]) -> Option<Vec<Plan>> {
    let mut movers = movers.to_vec();
    let begin = statement.checkpoint();
    let plans: Option<Vec<Plan>> =
        seats.iter().map(|seat| plan_and_place(statement, *seat, &mut movers)).collect();
    statement.rollback(begin);
    let plans = plans?;
    let moved = plans.iter().flat_map(|plan| &plan.moves);
    let pods = moved.map(|moved| &movers[moved.mover].pods[moved.pod].key);
    movers::exceeded(statement.cluster().objects(), pods).is_none().then_some(plans)
}

/// A plan, carried out in the statement.
fn plan_and_place(statement: &mut Statement<'_>, seat: Seat<'_>, movers: &mut [Mover]) -> Option<Plan> {
    let plan = plan(statement, Wanted::Seat(seat), movers).plan.ok()?;
    for moved in &plan.moves {
        let Mover { pods, claims, .. } = &movers[moved.mover];
        let pods: Vec<_> = pods.iter().map(|pod| pod.key.clone()).collect();
        statement.set_aside(&pods, claims);
    }
    let takes = plan.takes.as_ref()?;
    let mut is_placed = statement.place(seat.key, seat.pod, seat.demand, plan.node, takes);
    for moved in &plan.moves {
        let runner = &movers[moved.mover].pods[moved.pod];
        let successor = runner.demand.subject.pod.clone().unwrap_or_default();
        is_placed &= statement.place(&runner.key, &successor, &runner.demand, moved.node, &moved.takes);
    }
    for moved in &plan.moves {
        let mover = &mut movers[moved.mover];
        mover.devices.clear();
        mover.stays = Some(Stays::Obstacle("it moves already".to_owned()));
    }
    is_placed.then_some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_lose_at_most_a_tenth_of_what_they_gain() {
        assert!(is_worth(0, 0) && is_worth(1_000, 10_000));
        assert!(!is_worth(1_000, 9_999) && !is_worth(u64::MAX, u64::MAX - 1));
    }
}
