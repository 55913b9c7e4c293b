//! The work nobody asked for: at a start, from time to time, and when mps-host changes.
//!
//! In: the journal, the cards, mps-host's daemons. Out: what the journal says is so again; lost devices are made again, forgotten
//! claims are released. Touches what an attempt may touch, under the same locks, and skips what is locked.

mod look_after;
mod mps_settle;
mod mps_watch;
mod recover;
mod repair;
mod restore;

pub(super) use mps_watch::Follower;
