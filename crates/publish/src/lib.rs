//! Keeps the ResourceSlices of a node equal to what a [`Pool`] says. The only things specific to NVIDIA are
//! the names of device types.
//!
//! ```text
//! Pool ──> target (what can be published) ──┐
//! watch ──> store (what the server has) ────┴─> plan (fewest writes) ──> server
//!             ^ reads slices that others wrote
//! ```
//!
//! - The watch has metadata only. A slice whose resource version is not that of our last write is read once and compared
//!   ([`compare`]); if it is as desired, it is not kept ([`held_slice`]).
//! - A change of one slice takes one write ([`plan`]).
//! - What somebody else deletes or changes is restored at once, or with growing delays if it keeps happening ([`rivalry`]).
//! - If another driver of the same name publishes this node's cards, nothing is written (`other_driver`).
//! - What an API server drops (feature gates) or refuses (invalid) is left out, logged once, and tried again after a while
//!   or when the hardware changes ([`target`], [`features`]).
//! - With several instances on a node, the newest one writes ([`lock`]).
//! - The slices remain when the plugin ends. The Node owns them, so they are deleted with it.
#![forbid(unsafe_code)]

pub mod compare;
mod condition;
pub mod contents;
pub mod desired;
mod dispute;
pub mod draft;
pub mod failure;
pub mod features;
pub mod held_slice;
pub mod lock;
pub mod names;
mod other_driver;
pub mod plan;
mod publisher;
pub mod rivalry;
mod server;
mod session;
mod status;
pub mod store;
pub mod target;

pub use contents::Contents;
pub use desired::{Pool, PoolIdentity, Slice};
pub use features::Feature;
pub use publisher::{PublishOptions, Publisher};
pub use server::FIELD_MANAGER;
pub use status::{PublishStatus, Role};
