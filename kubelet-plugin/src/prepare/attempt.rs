//! Who waits for whom: one task a claim, attempts in it, and the locks of an attempt.
//!
//! In: a call of the kubelet. Out: its answer; a record and a CDI spec, or neither. Touches the journal, the CDI directory, and
//! cards only through [`cards`](super::cards).

mod call;
mod kubelet_checkpoint;
mod locks;
mod make_again;
mod metadata;
mod record;
mod retries;
mod running_pods;
mod spec;
mod stale;
mod steps;
mod tasks;
mod unprepare;

pub(super) use call::{Call, Ending};
pub(super) use metadata::{has_metadata, write_metadata};
pub(super) use record::{device_names, held_cards};
pub(super) use spec::spec;
pub(super) use steps::Attempt;
pub(super) use tasks::{Pending, Work};
