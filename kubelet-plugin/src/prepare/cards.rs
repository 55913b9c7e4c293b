//! Everything that touches a card, and who holds one.
//!
//! In: the needs of a claim and the locks of its cards. Out: what was made, by hardware record. Touches cards, mps-host and the
//! driver's tools; writes hardware records before each effect. Waits for no lock.

mod changes;
mod conflict;
mod driver_files;
mod holder;
mod missing;
mod record_ids;
mod sharing;
pub(super) mod unified_memory;
mod worker;

pub(super) use changes::{CardPlan, IfHeld, Left};
pub(super) use conflict::Use;
pub(super) use driver_files::Files;
pub(super) use holder::{Holder, all_holders, holders};
pub(super) use sharing::Sharing;
pub(super) use worker::Worker;
