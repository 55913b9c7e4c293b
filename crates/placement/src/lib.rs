//! Placement: which nodes can take a pod, which devices it would get there, and how well each suits.
//!
//! ```text
//! pod ─> Demand ─> Ranking (one for each shape: nodes by Score, the others by Reason) ─> Fit (devices on one node)
//!                     ├─> Fleet (cards and pools of each node, as plugins report them)
//!                     └─> value (links, room for partitions, packing: what the demand can still take)
//! ```
//!
//! Nothing is decided here: whose turn it is, what is written and what is on its way is the loop's (`tessera-decide`).
//! Pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

pub mod demand;
mod device_fits;
pub mod distance;
pub mod fit;
pub mod fleet;
mod kept;
pub mod node_cards;
pub mod packing;
pub mod ranking;
pub mod reason;
pub mod score;
mod shape;
pub mod spread;
mod time;
pub mod value;
mod verdict;
pub mod view;

pub use shape::ShapeId;
pub use time::Time;
