//! A cluster as kube-scheduler sees it: an index of the objects that decide who gets which devices.
//!
//! Fed by [`Cluster::apply`] and [`Cluster::delete`], by whoever knows the objects: a program that reads them once, or
//! watches that never end. Read through `&`, so by many threads at once; what a reader needs to itself, compiled selectors
//! and new share ids, is its [`Asker`].
//!
//! Pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

mod change;
mod cluster;
mod error;
pub mod node_fit;
mod objects;
pub mod outcome;
mod project;
pub mod subject;

pub use change::{Kind, Object};
pub use cluster::{Asker, Cluster};
pub use error::ObjectError;
pub use objects::{Key, Objects, display, reference};
