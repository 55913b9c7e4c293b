//! Which devices claims may have together: constraints, counters, capacities, taints and selectors, as Kubernetes 1.36
//! judges them.
//!
//! An [`Assignment`] begins empty and grows device by device ([`Assignment::take`], [`Assignment::undo`]); each step is
//! allowed or not. In which order devices are tried, and which whole assignment is the answer, is decided above, by an
//! enumeration such as [`crate::upstream`].

mod assignment;
mod basis;
mod capacity;
mod constraints;
mod counters;
mod eligible;
mod pools;
mod prepare;
mod result;
mod slot;
mod taints;
mod take;

pub(crate) use assignment::{Assignment, NO, Undo};
pub(crate) use basis::Basis;
pub(crate) use pools::Pool;
pub(crate) use slot::{MOST_RESULTS, Slot};
pub(crate) use taints::untolerated;
