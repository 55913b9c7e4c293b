//! Kubernetes' structured allocator, with kube-scheduler's results and the reasons for them, and a placement of least
//! cost to allocate instead.
//!
//! Pure: no I/O, no clock, no threads; ids of shares come from the caller. Wing `scheduling`: may use `base`, never
//! `node`.
//!
//! Read slices with [`inventory::Inventory::add`], existing allocations with [`held::Held::add`], claims with
//! `Claim::try_from`, classes with `Class::from` and nodes with `Node::from` (see [`convert`]); then call
//! [`upstream::Allocator::allocate`] for kube-scheduler's answer, or [`placement::Placement::place`] for the devices of
//! least cost.

pub mod amount;
pub mod claim;
pub mod convert;
pub mod error;
pub mod explain;
pub mod features;
pub mod held;
pub mod inventory;
mod mix;
pub mod names;
pub mod node;
pub mod overlap;
pub mod placement;
pub mod selectors;
pub mod upstream;
mod validity;
