//! The decision loop: which waiting pod is sent to which node, and which devices of managed cards it gets there.
//!
//! Observations go in ([`Decider::observe`]), intents come out ([`Decider::decide`]); whoever feeds it carries them out
//! and says how that went. The controller feeds it from watches, a simulator from a trace, tests from anything.
//!
//! ```text
//! observation ─> Decider ─┬─> Cluster (what is held, what is free, what is on its way)
//!                         └─> Fleet (cards and pools of each node, as plugins report them)
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
