//! Pods to evict so that seats get nodes.
//!
//! ```text
//! units by node ─> arithmetic (what a node lacks, which units free at least as much) ─> nodes by cost ─> exact fit in a Statement
//! ```
//!
//! Victims are of the lowest priority, then as few gangs and pods as possible, then the youngest. The arithmetic uses lower bounds of
//! what a seat takes, so no node is missed; only nodes in the order of their cost are tried exactly, and at most [`MOST_FITS`] in vain.

mod choice;
mod search;
mod spare;
mod units;

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;

use crate::ranking::Rankings;
use crate::seats::{Filter, Placed, Seat};
use crate::statement::Statement;
pub use choice::{key, least_cards};
use search::Search;
pub use units::{Effort, Unit, Units};

/// Limit on exact fits of a plan that lead to no placement.
pub const MOST_FITS: usize = 64;

/// Cost of losing units: the least is best.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// The highest priority lost; `None` without victims.
    priority: Option<i32>,
    gangs: usize,
    pods: usize,
    /// Creation of the oldest unit.
    created: Reverse<Option<Timestamp>>,
}

impl Cost {
    /// Cost of losing all of these.
    pub fn of<'u>(units: impl Iterator<Item = &'u Unit>) -> Self {
        let mut cost = Cost { priority: None, gangs: 0, pods: 0, created: Reverse(None) };
        for (place, unit) in units.enumerate() {
            cost.priority = cost.priority.max(Some(unit.priority));
            cost.gangs += usize::from(unit.is_gang);
            cost.pods += unit.pods.len();
            let created = Reverse(unit.created.clone());
            cost.created = if place == 0 { created } else { cost.created.max(created) };
        }
        cost
    }
}

/// Placements, and the units in their way.
#[derive(Debug)]
pub struct Plan {
    /// Node and devices of each placed seat.
    pub placed: Vec<Placed>,
    /// Indices of the units to evict; empty where nobody has to go but those [leaving](Units::new).
    pub victims: Vec<usize>,
}

/// Places at least `needed` seats with the cheapest units gone, of those that `may` go. `None` if no eviction helps.
///
/// The statement must be empty, and is empty afterwards. What the units take must have been [looked up](Units::look_up).
pub fn plan(
    statement: &mut Statement<'_>,
    rankings: &mut Rankings,
    seats: &[Seat<'_>],
    needed: usize,
    units: &mut Units,
    may: &[bool],
    filter: &impl Filter,
) -> Option<Plan> {
    units.effort.plans += 1;
    let begin = statement.checkpoint();
    let search = Search::new(statement, rankings, seats, units, may, filter);
    let plan = search.run(needed.max(1));
    statement.rollback(begin);
    plan
}
