//! From facts about the cards of a machine to its published form: groups, order, devices, counters, slices.
//!
//! ```text
//! Machine (facts) ─┬─> topology (links, groups, order) ────────┐
//!                  ├─> mig (profiles, placements) ─────────────┼─> Pool (tiers of slices)
//! GpuPools ────────┴─> gpu_pools (what is offered of each card)┘
//! ```
//! Pure (no I/O, no clock, no threads) and deterministic: the same facts give the same slices, in any order of
//! enumeration of the cards. Wing `base`: may use neither `node` nor `scheduling`.
#![forbid(unsafe_code)]

pub mod gpu_pools;
pub mod layout;
pub mod machine;
pub mod mig;
pub mod pool;
pub mod static_partitions;
pub mod topology;
mod warning;

pub use machine::Machine;
pub use pool::{Pool, PoolOptions};
pub use static_partitions::{NoStaticPartitions, StaticPartitions};
pub use topology::Topology;
pub use warning::Warning;
