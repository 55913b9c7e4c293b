//! Devices that kube-scheduler is expected to choose: its choice may differ.

use std::collections::BTreeSet;

/// Nodes for which kube-scheduler's choice is predicted again.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// Nodes where a claim gained or lost devices: pods in flight to them may get other devices than predicted.
    pub reallocated: BTreeSet<String>,
    /// Nodes with too few devices for all pods in flight to them, as of the last prediction.
    pub crowded: BTreeSet<String>,
}
