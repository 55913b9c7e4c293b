//! What the publisher is doing, for metrics and readiness.

use std::collections::BTreeSet;

use crate::features::Feature;

/// What this instance does about ResourceSlices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The hardware has not been read yet: what is published stays as it is.
    #[default]
    WaitingForHardware,
    /// Another, newer instance of a rolling upgrade publishes, or this one is waiting for an older one to let go.
    Standby,
    /// This instance publishes.
    Publishing,
}

/// What is published of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishStatus {
    /// What this instance does.
    pub role: Role,
    /// Whether the API server holds exactly what can be published of the present hardware.
    pub in_sync: bool,
    /// The generation of the pool when it was last in sync; `None` before, and for a pool without slices.
    pub generation: Option<i64>,
    /// ResourceSlices when last in sync.
    pub slices: usize,
    /// Devices when last in sync.
    pub devices: usize,
    /// What keeps the slices from being right, or leaves something out of them; `None` when all is well.
    pub last_error: Option<String>,
    /// Features that the API server does not keep, so that something is not published.
    pub missing_features: BTreeSet<Feature>,
    /// Requests that changed something at the API server (create, update, delete), since the process started.
    pub writes: u64,
    /// Requests that failed, since the process started.
    pub failures: u64,
    /// Times that slices were put back because somebody else had changed or deleted them.
    pub repairs: u64,
}
