//! What kube-scheduler would allocate: Kubernetes' structured allocator, with the same results, and why; and what to
//! allocate in its place.
//!
//! Pure: no I/O, no clock, no threads; ids of shares come from the caller.
//!
//! Read slices with [`inventory::Inventory::add`], existing allocations with [`held::Held::add`], claims with
//! `Claim::try_from`, classes with `Class::from` and nodes with `Node::from` (see [`convert`]); then call
//! [`upstream::Allocator::allocate`] for what kube-scheduler would do, or [`placement::Placement::place`] for the devices that
//! cost least.

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
