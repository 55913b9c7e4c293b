//! Keeps the ResourceSlices of a node as [`Desired`]. The only things specific to NVIDIA are
//! the names of device types.
//!
//! ```text
//! Desired ─> target (what can be published) ─┐
//! watch ──> store (what the server has) ─────┴─> plan (fewest writes) ──> server
//!             ^ reads slices that others wrote
//! ```
//!
//! - The watch has metadata only. A slice with another resource version than our last write is read once and compared
//!   (`compare`). A slice found as desired is not kept (`held_slice`).
//! - A change of one slice takes one write (`plan`).
//! - Foreign deletions and changes are undone at once, or with growing delays if they keep happening (`rivalry`).
//! - If another driver of the same name publishes this node's cards, nothing is written (`other_driver`).
//! - Parts dropped (feature gates) or refused (invalid) by an API server are left out, logged once, and tried again
//!   after a while or when the hardware changes (`target`, `features`).
//! - With several instances on a node, the newest one writes (`lock`).
//! - The slices remain when the plugin ends. The Node owns its slices, so they are deleted with the Node.
//!
//! In: the desired pool, and slices of the API server. Out: writes of slices, and their status. May touch the API
//! server, two lock files, clock and tasks; not hardware. Wing `node`: may use `base`, never `scheduling`.
#![forbid(unsafe_code)]

mod compare;
mod condition;
mod desired;
mod dispute;
mod draft;
mod failure;
mod features;
mod held_slice;
mod lock;
mod names;
mod other_driver;
mod plan;
mod publisher;
mod rivalry;
mod server;
mod session;
mod status;
mod store;
mod target;

pub use desired::{Desired, PoolIdentity};
pub use publisher::{PublishOptions, Publisher};
pub use status::{PublishStatus, Role};
