//! The directory of a machine: what a node with the real driver has at the same places.

pub mod create;
pub mod dev;
pub mod proc;
pub mod sys;

pub use self::create::{CreateError, create};
