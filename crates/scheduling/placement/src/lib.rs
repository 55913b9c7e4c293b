//! Placement: nodes able to take a pod, the devices allocated there, and a score for each node.
//!
//! ```text
//! pod ─> Demand ─> Ranking (one for each shape: nodes by Score, the others by Reason) ─> Fit (devices on one node)
//!                     ├─> Fleet (cards and pools of each node, as plugins report them)
//!                     └─> value (links, room for partitions, packing: what the demand can still take)
//! pods of a group ─> seats (a node for each) ─> victims (who has to go for them), both tried in a Statement
//! a pod without room ─> gather (who would have to move for it, and where to)
//! ```
//!
//! This crate decides nothing: queue order, writes and decisions in flight belong to the loop (`tessera-decide`).
//! Pure: no I/O, no clock, no threads. Wing `scheduling`: may use `base`, never `node`.
#![forbid(unsafe_code)]

pub mod demand;
mod device_fits;
pub mod distance;
pub mod fit;
pub mod fleet;
pub mod gather;
mod kept;
pub mod node_cards;
pub mod packing;
pub mod ranking;
pub mod reason;
pub mod score;
pub mod seats;
mod shape;
pub mod spread;
pub mod statement;
pub mod take_limit;
mod time;
pub mod value;
mod verdict;
pub mod victims;
pub mod view;

pub use shape::ShapeId;
pub use time::Time;
