//! Which devices claims may have together: constraints, counters, capacities, taints and selectors, by the rules of
//! a release of Kubernetes.
//!
//! An [`Assignment`] begins empty and grows device by device ([`Assignment::take`], [`Assignment::undo`]); each step
//! is allowed or not. The enumerations, [`crate::upstream`] and [`crate::placement`], decide in which order devices are
//! tried, and which complete assignment is the answer.

mod assignment;
mod basis;
mod capacity;
mod constraints;
mod counters;
mod eligible;
mod pick;
mod pools;
mod prepare;
mod result;
mod slot;
mod taints;
mod take;

pub(crate) use assignment::{Assignment, NO, Picked, Undo};
pub(crate) use basis::Basis;
pub(crate) use capacity::{Arithmetic, consumed};
pub(crate) use constraints::ConstraintState;
pub use pick::{MayTake, Pick};
pub(crate) use pools::Pool;
pub(crate) use slot::{MOST_RESULTS, Slot};
pub(crate) use taints::untolerated;
