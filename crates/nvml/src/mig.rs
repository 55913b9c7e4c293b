//! MIG (Multi-Instance GPU): what a card can be divided into, and what it is divided into now.

mod instance;
mod mode;
mod profile;

pub use instance::{ComputeInstance, GpuInstance};
pub use mode::{MigMode, MigModeSwitch};
pub use profile::{ComputeInstanceProfile, GpuInstanceProfile, Placement};
