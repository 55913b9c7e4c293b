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

/// The cheapest moves after which there is room. The statement must be empty, and is empty afterwards.
pub fn plan(statement: &mut Statement<'_>, wanted: Wanted<'_>, movers: &[Mover]) -> Gathered {
    Search::new(statement, wanted, movers).run()
}
