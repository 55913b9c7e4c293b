//! The decision loop: which waiting pod is sent to which node.
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
//! Pure: no I/O, no clock, no threads. Time is passed in, as the duration since any fixed moment.
#![forbid(unsafe_code)]

mod blocked;
mod decider;
mod demand;
mod fleet;
mod intent;
mod node_cards;
mod ranking;
mod refusals;
mod score;
mod steers;
mod summary;
pub mod value;

pub use decider::{Decider, Observation, ObservationError};
pub use intent::{Intent, PodReference};
pub use summary::{PoolSummary, Shape};

/// Time since any fixed moment; never goes back.
pub type Time = std::time::Duration;
