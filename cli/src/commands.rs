//! The commands.

pub mod cel;
