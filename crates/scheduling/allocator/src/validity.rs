//! Validity of assignments of devices to claims: constraints, counters, capacities, taints and selectors, by the rules of
//! a release of Kubernetes.
//!
//! An [`Assignment`] begins empty and grows device by device ([`Assignment::take`], [`Assignment::undo`]); each step
//! is allowed or not. The enumerations, [`crate::upstream`] and [`crate::placement`], decide the order of trying
//! devices, and choose the complete assignment for the answer.

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
