//! The directory of a machine: what a node with the real driver has at the same places.

pub mod capabilities;
pub mod create;
pub mod dev;
pub mod driver_files;
pub mod elf;
pub mod functions;
pub mod proc;
pub mod sys;

pub use self::create::{CreateError, create};
pub use self::dev::Nodes;
