//! The decision loop: picks a node for each waiting pod, and its devices of managed cards there.
//!
//! Observations go in ([`Decider::observe`]), intents come out ([`Decider::decide`]). The caller carries out the intents and
//! reports their outcomes. The controller feeds the loop from watches, a simulator from a trace, tests from anything.
//!
//! ```text
//! observation ─> Decider ─┬─> Cluster (allocated, free and in-flight devices)
//!                         └─> Fleet (cards and pools of each node, as reported by plugins)
//!      waiting pod ─> Demand ─> Ranking (nodes by Score, one for each shape of demand) ─> Intent
//! ```
//!
//! Pure: no I/O, no clock, no threads. Time is passed in, as the duration since the Unix epoch. Wing `scheduling`: may
//! use `base`, never `node`.
#![forbid(unsafe_code)]

mod admission;
mod backoff;
mod build;
mod commit;
mod decider;
mod fencing;
mod fleet_view;
mod gangs;
mod gathering;
mod group;
mod guesses;
mod healing;
mod holders;
mod hours_left;
mod idle;
mod incomplete;
mod intent;
mod kueue;
mod leadership;
mod learn;
mod ledger;
mod marks;
mod no_room;
mod nodes;
mod nominations;
mod observation;
mod observe;
mod on_the_way;
mod open_seats;
mod order;
mod overuse;
mod partial;
mod passed_by;
mod paused;
mod places;
mod plan;
mod pod;
mod pools;
mod predict;
mod preempt;
mod queue;
mod refusals;
mod reserve;
mod room;
mod round;
mod selector_costs;
mod state;
mod step;
mod summary;
mod teams;
mod tell;
mod term;
mod turns;
mod unplaced;
mod upkeep;
mod victims;
mod view;
mod wait_reason;
mod waits;
mod workload_pods;
mod world;

pub use decider::Decider;
pub use intent::{ClaimAllocation, ClaimReference, Intent, PodReference, Topic, WorkloadReference};
pub use observation::{Observation, ObservationError};
pub use summary::{PoolSummary, PoolVerdict, Shape};
pub use teams::{AmountSummary, HoursSummary, PeriodSummary, QuotaSummary, ReclaimTo};
pub use tessera_placement::Time;
pub use view::{FleetSnapshot, ViewPass};
pub use wait_reason::WaitReason;
