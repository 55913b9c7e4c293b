//! Changes of a card, for claims and for static layouts alike, under the card's lock.
//!
//! ```text
//! locks ─> mig_mode ─> partition ─> … ─> partition ─> mig_mode
//!          switch on   make              destroy      switch off
//! ```
//!
//! [`clients()`] lists the processes on the card. Nothing is recorded here: the caller writes the journal first.
//!
//! In: a card and the wanted change. Out: the changed card, or an error. May touch hardware (through `nvml`), lock
//! files, `/proc`, clock and tasks; not the API server. Wing `node`: may use `base`, never `scheduling`.
#![forbid(unsafe_code)]

mod clients;
mod instances;
mod lock_watch;
mod locks;
mod mig_mode;
mod partition;

pub use clients::{Clients, clients};
pub use instances::{describe, is_of_change};
pub use lock_watch::LockState;
pub use locks::{CardLock, CardLocks, FileLock, LockError, Locks};
pub use mig_mode::{Pending, Switched, switch_mig_mode, switches_at_once};
pub use partition::{MakeError, destroy_partition, make_partition};
