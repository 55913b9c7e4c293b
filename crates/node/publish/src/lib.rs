//! Keeps the ResourceSlices of a node equal to what a [`Pool`] says. The only things specific to NVIDIA are
//! the names of device types.
//!
//! ```text
//! Pool ──> target (what can be published) ──┐
//! watch ──> store (what the server has) ────┴─> plan (fewest writes) ──> server
//!             ^ reads slices that others wrote
//! ```
//!
//! - The watch has metadata only. A slice with another resource version than our last write is read once and compared
//!   ([`compare`]). A slice found as desired is not kept ([`held_slice`]).
//! - A change of one slice takes one write ([`plan`]).
//! - Foreign deletions and changes are undone at once, or with growing delays if they keep happening ([`rivalry`]).
//! - If another driver of the same name publishes this node's cards, nothing is written (`other_driver`).
//! - Parts dropped (feature gates) or refused (invalid) by an API server are left out, logged once, and tried again
//!   after a while or when the hardware changes ([`target`], [`features`]).
//! - With several instances on a node, the newest one writes ([`lock`]).
//! - The slices remain when the plugin ends. The Node owns its slices, so they are deleted with the Node.
//!
//! In: the desired pool, and slices of the API server. Out: writes of slices, and their status. May touch the API
//! server, two lock files, clock and tasks; not hardware. Wing `node`: may use `base`, never `scheduling`.
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
