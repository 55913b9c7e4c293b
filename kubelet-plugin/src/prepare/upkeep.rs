//! The work nobody asked for: at a start, from time to time, and when mps-host changes.
//!
//! In: the journal, the cards, mps-host's daemons. Out: what the journal says is so again; lost devices are made again, forgotten
//! claims are released. Touches what an attempt may touch, under the same locks, and skips what is locked.

pub(super) mod look_after;
pub(super) mod mps_settle;
pub(super) mod mps_watch;
pub(super) mod recover;
pub(super) mod repair;
pub(super) mod restore;
pub(super) mod sweep;
