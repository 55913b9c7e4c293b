//! What MIG can make of a card, from the driver's facts alone: which profiles, in which order their placements are tried,
//! and what besides memory slices limits how they go together.

mod engines;
mod grid;
mod order;
mod packing;

pub use engines::Engine;
pub use grid::{Grid, GridProfile};
pub use order::placement_orders;
pub use packing::is_instance_limited;
