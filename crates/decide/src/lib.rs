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
//! Pure: no I/O, no clock, no threads. Time is passed in, as the duration since the Unix epoch.
#![forbid(unsafe_code)]

mod decider;
mod gangs;
mod healing;
mod intent;
mod ledger;
mod queue;
mod refusals;
mod summary;
mod term;
mod view;
mod wait_reason;
mod workload_pods;

pub use decider::{Decider, Observation, ObservationError};
pub use intent::{ClaimAllocation, ClaimReference, Intent, PodReference, Topic};
pub use summary::{PoolSummary, PoolVerdict, Shape};
pub use tessera_placement::Time;
pub use view::{FleetSnapshot, ViewPass};
pub use wait_reason::WaitReason;
