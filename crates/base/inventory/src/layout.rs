//! Static MIG layouts: an administrator's permanent partitions of each card.
//!
//! ```text
//! mig-parted's file ──> LayoutFile ──> LayoutConfig ──> LayoutEntry (of a card) ──> plan ──> Layout (placements)
//! ```
//! The file format is that of NVIDIA's `mig-parted`, and so of the GPU Operator's MIG manager: the same file works here.

mod combinations;
mod desired;
mod entry;
mod file;
mod file_error;
mod placed;
mod plan;
mod room;

pub use combinations::{Combination, combinations, maximal_layouts};
pub use desired::Desired;
pub use entry::{CardIndexes, LayoutConfig, LayoutEntry};
pub use file::{LayoutFile, UnknownLayout};
pub use file_error::LayoutFileError;
pub use placed::{Layout, PlannedInstance};
pub use plan::{LayoutError, plan};
