//! Keeps the ResourceSlices of a node equal to what a [`Pool`] says. Nothing of NVIDIA is in here, but for the names of devices' types.
//!
//! ```text
//! Pool ──> target (what can be published) ──┐
//! watch ──> store (what the server holds) ──┴─> plan (fewest writes) ──> server
//!             ^ reads what another wrote
//! ```
//!
//! - The watch tells metadata only. A slice with another resource version than that of our last write is read once, compared
//!   ([`compare`]), and dropped where it is what is wanted ([`held_slice`]).
//! - One slice that changed is one write; nothing that changed is none ([`plan`]).
//! - What somebody else deletes or changes is put right at once, and later and later when that goes on ([`rivalry`]).
//! - Where another driver of the same name publishes cards of this node, nothing is written (`other_driver`).
//! - What an API server does not keep (feature gates) or refuses (invalid) is left out, said once, and tried again after
//!   a while or when the hardware changes ([`target`], [`features`]).
//! - Of several instances on a node the newest writes ([`lock`]).
//! - The slices stay when the plugin ends. They belong to the Node and go with it.
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
pub use server::{FIELD_MANAGER, client};
pub use status::{PublishStatus, Role};
