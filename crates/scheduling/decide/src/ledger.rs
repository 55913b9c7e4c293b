//! Decisions not yet observed: the only record of writes in flight.
//!
//! **Guarantees**
//! 1. A claim has at most one row, so no claim is ever written for two owners. A pod has at most one row.
//! 2. Devices of a row count as taken from the decision until objects show them, or until they certainly never
//!    will, whatever becomes of the pod.
//! 3. Every row waits for an event certain to come: the answer to a write, an object, or a deadline.
//! 4. Losing leadership drops no allocation: its write may still arrive.
//!
//! **States**
//!
//! ```text
//! claim:  Allocate  Sent ──(done)──> Acknowledged(version) ──(observed, or a later version without)──> gone
//!                    ├──(refused for good)──> gone
//!                    └──(failed, or no answer)──> Uncertain ──(epoch written, observed, or claim gone)──> gone
//!         Clear, Fence  ──(answer)──> gone
//! pod:    writing ──(answer)──> with kube-scheduler ──(bound and claims observed, refused, overdue, pod gone)──> gone
//!         released by another replica ──(devices predicted)──> with kube-scheduler
//! nominate:  sent ──(observed)──> counted as taken ──(pod has devices, or is over)──> gone; not observed in 10 s: planned anew
//! evict:  sent ──(answer, or 30 s)──> may be sent again; refused: not for a minute, or longer
//! ```

mod claims;
mod evictions;
mod nominations;
mod pods;

pub(crate) use claims::{Allocation, ClaimWrites, Progress};
pub(crate) use evictions::{Evictions, OwnerCount};
pub(crate) use nominations::Nominations;
pub(crate) use pods::{ManagedProposal, PodWrites, Proposal};

/// Writes in flight.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Writes to claims.
    pub claims: ClaimWrites,
    /// Pods with a write in flight, or awaiting a verdict of kube-scheduler.
    pub pods: PodWrites,
    pub evictions: Evictions,
    pub nominations: Nominations,
}
