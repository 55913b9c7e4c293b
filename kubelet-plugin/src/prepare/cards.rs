//! Everything that touches a card, and who holds one.
//!
//! In: the needs of a claim and the locks of its cards. Out: what was made, by hardware record. Touches cards, mps-host and the
//! driver's tools; writes hardware records before each effect. Waits for no lock.

pub(super) mod changes;
pub(super) mod conflict;
pub(super) mod driver_files;
pub(super) mod holder;
pub(super) mod missing;
pub(super) mod record_ids;
pub(super) mod sharing;
pub(super) mod unified_memory;
pub(super) mod worker;
