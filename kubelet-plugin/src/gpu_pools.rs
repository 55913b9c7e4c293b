//! The GpuPool of each card of this node, and the card's offer.
//!
//! ```text
//! GpuPools (watched) ─┐
//! labels of the Node ─┤
//! API server's version┼─> known, also in a file ─┐
//! last known (file) ──┘                          ├─> resolve ─> Resolution ─> publishing, layouts, preparing
//! machine ───────────────────────────────────────┘
//! ```
//! Unreadable pools are not "no pools": the last known ones hold, over restarts too. Until anything is known,
//! nothing new is published.

mod follow;
mod handover;
mod known;
mod known_file;
mod resolve;

pub use follow::{PoolFollower, Reading};
pub use known::{Known, KnownPool};
pub use resolve::resolve;
pub use tessera_inventory::gpu_pools::Resolution;
