//! Inputs for judging nodes.

use k8s_openapi::api::core::v1::Node;
use tessera_cluster::{Asker, Cluster};

use crate::fleet::{Fleet, NodeIndex};
use crate::take_limit::TakeLimit;
use crate::time::Time;
use crate::value::RequestMix;

/// Inputs for judging nodes.
pub struct View<'v> {
    /// Kubernetes objects, and the held devices and room.
    pub cluster: &'v Cluster,
    /// Nodes with our cards.
    pub fleet: &'v mut Fleet,
    /// Compiled selectors.
    pub asker: &'v mut Asker,
    /// Name of our driver.
    pub driver: &'v str,
    /// Managed cards tainted up to this time may be allocated; `None` before any handover.
    pub handed_over: Option<Time>,
    /// Mix of requested partitions.
    pub mix: &'v RequestMix,
    /// Limits on what the pod's namespace may take of managed cards. Rankings, which are for all namespaces, have none.
    pub limit: Option<&'v TakeLimit>,
}

impl<'v> View<'v> {
    /// The Node object; `None` if deleted, as the slices of a deleted node stay for a while.
    pub fn object(&self, index: NodeIndex) -> Option<&'v Node> {
        self.cluster.objects().node(&self.fleet.node(index).name)
    }
}
