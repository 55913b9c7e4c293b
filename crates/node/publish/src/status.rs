//! The publisher's status, for metrics and readiness.

use std::collections::BTreeSet;

use crate::features::Feature;

/// The role of this instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The hardware has not been read yet; the published slices stay as they are.
    #[default]
    WaitingForHardware,
    /// A newer instance publishes, or this one waits for an older one to finish.
    Standby,
    /// This instance publishes.
    Publishing,
}

/// The state of this node's slices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishStatus {
    /// The role of this instance.
    pub role: Role,
    /// Whether the API server has exactly the publishable part of the present hardware.
    pub in_sync: bool,
    /// The pool's generation when last in sync; `None` before, and for a pool without slices.
    pub generation: Option<i64>,
    /// Number of ResourceSlices when last in sync.
    pub slices: usize,
    /// Number of devices when last in sync.
    pub devices: usize,
    /// Why the slices are not as desired, or the parts left out of them; `None` if there is no problem.
    pub last_error: Option<String>,
    /// Feature gates without which the API server drops fields, so that something is not published.
    pub missing_gates: BTreeSet<&'static str>,
    /// Number of successful creations, updates and deletions since the process started.
    pub writes: u64,
    /// Number of failed requests since the process started.
    pub failures: u64,
    /// How often slices were restored because somebody else had changed or deleted them.
    pub repairs: u64,
}

impl PublishStatus {
    /// Whether the API server keeps taints of devices, as far as is known.
    #[must_use]
    pub fn keeps_taints(&self) -> bool {
        !self.missing_gates.contains(Feature::DeviceTaints.gate())
    }
}
