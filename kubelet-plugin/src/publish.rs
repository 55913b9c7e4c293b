//! Keeps the ResourceSlices of this node equal to what [`tessera_inventory::Pool`] says.
//!
//! ```text
//! Pool ──> target (what can be published) ──┐
//! watch ──> store (what the server holds) ──┴─> plan (fewest writes) ──> server
//! ```
//!
//! - One slice that changed is one write; nothing that changed is none ([`plan`]).
//! - What somebody else deletes or changes is put right at once, and later and later when that goes on ([`rivalry`]).
//! - Where another driver of the same name publishes cards of this node, nothing is written (`other_driver`).
//! - What an API server does not keep (feature gates) or refuses (invalid) is left out, said once, and tried again after
//!   a while or when the hardware changes ([`target`], [`features`]).
//! - Of several instances on a node the newest writes ([`lock`]).
//! - The slices stay when the plugin ends. They belong to the Node and go with it.

pub mod compare;
mod condition;
pub mod desired;
pub mod digest;
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
pub(crate) mod resource_slice;
pub mod rivalry;
mod server;
mod session;
mod status;
pub mod store;
pub mod target;

pub use features::Feature;
pub use publisher::{PublishOptions, Publisher};
pub use server::{FIELD_MANAGER, client};
pub use status::{PublishStatus, Role};
