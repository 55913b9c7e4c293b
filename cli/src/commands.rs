//! The commands.

pub mod allocate;
pub mod cel;
pub mod explain;
pub mod pools;
pub mod topology;
pub mod ungate;
