//! Errors of the allocation, beyond "does not fit".

/// An error of the allocation, with Kubernetes' text. Except for [`AllocateError::InvalidPools`] it ends the pod's
/// scheduling attempt: kube-scheduler tries no other node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// A claim, a class, a selector or a pool makes an answer impossible.
    #[error("{0}")]
    Fatal(String),
    /// The claims do not fit on this node, and some of the node's pools are invalid. Another node may fit.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The search was given up, see [`crate::upstream::Allocator::effort_limit`]. kube-scheduler gives up after ten seconds.
    #[error("no answer after {0} devices tried: ask for less at once")]
    TooLong(u64),
    /// Kubernetes' code panics on this input. The API server accepts no such object.
    #[error("panic: {0}")]
    Panic(String),
}
