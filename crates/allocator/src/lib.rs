//! What kube-scheduler would allocate: Kubernetes' structured allocator, with the same results, and why.
//!
//! Pure: no I/O, no clock, no threads; ids of shares come from the caller.
//!
//! Read slices with [`inventory::Inventory::add`], existing allocations with [`held::Held::add`], claims with
//! `Claim::try_from`, classes with `Class::from` and nodes with `Node::from` (see [`convert`]); then call
//! [`upstream::Allocator::allocate`].

pub mod amount;
pub mod claim;
pub mod convert;
pub mod error;
pub mod explain;
pub mod features;
pub mod held;
pub mod inventory;
pub mod names;
pub mod node;
pub mod placement;
pub mod selectors;
pub mod upstream;
mod validity;
