//! What nodes are judged by.

use k8s_openapi::api::core::v1::Node;
use tessera_cluster::{Asker, Cluster};

use crate::fleet::{Fleet, NodeIndex};
use crate::time::Time;
use crate::value::RequestMix;

/// What nodes are judged by.
pub struct View<'v> {
    /// Objects, and what is held of devices and room.
    pub cluster: &'v Cluster,
    /// Nodes with cards of ours.
    pub fleet: &'v mut Fleet,
    /// Selectors, compiled.
    pub asker: &'v mut Asker,
    /// Name of our driver.
    pub driver: &'v str,
    /// Managed cards may be allocated that were tainted until then.
    pub handed_over: Option<Time>,
    /// Which partitions were asked for.
    pub mix: &'v RequestMix,
}

impl<'v> View<'v> {
    /// The node's object; slices of a node that is gone stay for a while.
    pub fn object(&self, index: NodeIndex) -> Option<&'v Node> {
        self.cluster.objects().node(&self.fleet.node(index).name)
    }
}
