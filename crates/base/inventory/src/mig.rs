//! Partitioning by MIG, computed from the driver's facts alone: the profiles, the order of trying their placements,
//! and the limits other than memory slices.

mod engines;
mod grid;
mod order;
mod packing;

pub use engines::Engine;
pub use grid::{Grid, GridProfile};
pub use order::placement_orders;
pub use packing::is_instance_limited;
