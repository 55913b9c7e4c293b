//! What was decided and is not yet observed: the only memory of what is on its way.
//!
//! **Guarantees**
//! 1. A claim has at most one row, so that it is never written for two owners; a pod has at most one.
//! 2. Devices of a row count as taken from the decision until objects show them, or until it is certain that they never
//!    will: whatever becomes of the pod.
//! 3. Every row waits for something that comes: the answer to a write, an object, or a deadline.
//! 4. Following another leader drops no allocation: its write may still arrive.
//!
//! **States**
//!
//! ```text
//! claim:  Allocate  Sent ──(done)──> Acknowledged(version) ──(seen, or seen later without)──> gone
//!                    ├──(refused for good)──> gone
//!                    └──(failed, or no answer)──> Uncertain ──(epoch written, seen, or claim gone)──> gone
//!         Clear, Fence  ──(answer)──> gone
//! pod:    writing ──(answer)──> with kube-scheduler ──(bound and claims seen, refused, overdue, pod gone)──> gone
//! evict:  sent ──(answer, or 30 s)──> may be sent again; refused: not for a minute
//! ```

mod claims;
mod evictions;
mod pods;

pub(crate) use claims::{Allocation, ClaimWrites, Progress};
pub(crate) use evictions::{Evictions, OwnerCount};
pub(crate) use pods::{ManagedProposal, PodWrites, Proposal};

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Writes to claims.
    pub claims: ClaimWrites,
    /// Pods for which something is written, or of which kube-scheduler has yet to say what becomes of them.
    pub pods: PodWrites,
    /// Evictions.
    pub evictions: Evictions,
}
