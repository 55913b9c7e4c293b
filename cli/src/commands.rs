//! The commands.

pub mod allocate;
pub mod cel;
pub mod explain;
