//! Who waits for whom: one task a claim, attempts in it, and the locks of an attempt.
//!
//! In: a call of the kubelet. Out: its answer; a record and a CDI spec, or neither. Touches the journal, the CDI directory, and
//! cards only through [`cards`](super::cards).

pub(super) mod call;
pub(super) mod kubelet_checkpoint;
mod locks;
pub(super) mod make_again;
pub(super) mod metadata;
pub(super) mod record;
pub(super) mod retries;
pub(super) mod running_pods;
pub(super) mod spec;
pub(super) mod stale;
pub(super) mod steps;
pub(super) mod tasks;
pub(super) mod unprepare;
