//! Devices that kube-scheduler is expected to choose: its choice may differ.

use std::collections::BTreeSet;

use tessera_cluster::Key;

/// Pods and nodes for which kube-scheduler's choice is predicted again.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// Pods released to a node by another replica, or by this process before a restart.
    pub adopted: BTreeSet<Key>,
    /// Nodes where a claim gained or lost devices: pods in flight to them may get other devices than predicted.
    pub reallocated: BTreeSet<String>,
    /// Nodes with too few devices for all pods in flight to them, as of the last prediction.
    pub crowded: BTreeSet<String>,
}
