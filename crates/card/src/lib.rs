//! What is done to a card, for claims and for static layouts alike, under the card's lock.
//!
//! ```text
//! locks ─> mig_mode ─> partition ─> … ─> partition ─> mig_mode
//!          switch on   make              destroy      switch off
//! ```
//!
//! [`clients()`] says who is in the way. Nothing is recorded here: who changes a card says so in the journal before.
#![forbid(unsafe_code)]

mod clients;
mod instances;
mod locks;
mod mig_mode;
mod partition;

pub use clients::clients;
pub use instances::{describe, is_of_change};
pub use locks::{CardLock, CardLocks, FileLock, LockError, Locks};
pub use mig_mode::{Pending, Switched, switch_mig_mode, switches_at_once};
pub use partition::{MakeError, destroy_partition, make_partition};
