use std::path::Path;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{Cluster, ClusterError};
use crate::node;

impl Cluster {
    /// Adds a node as a mere API object, ready and with room for 110 pods: for the scheduler tier.
    ///
    /// # Errors
    /// The API refuses the node.
    pub async fn add_node_object(&self, name: &str) -> Result<NodeObject, ClusterError> {
        let resources = json!({ "cpu": "64", "memory": "512Gi", "pods": "110" });
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" },
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "TestNode" }],
            },
        });
        let node =
            serde_json::from_value(node).map_err(|error| ClusterError::Configuration(error.to_string()))?;
        let nodes: Api<NodeObject> = Api::all(self.client().await?);
        Ok(nodes.create(&PostParams::default(), &node).await?)
    }

    /// Imports an image archive, for example of [`crate::Image::write`], on all nodes.
    ///
    /// # Errors
    /// containerd refuses the archive.
    pub async fn import_image(&self, archive: &Path) -> Result<(), ClusterError> {
        try_join_all(self.nodes().iter().map(|node| node::import_image(&self.record, node, archive))).await?;
        Ok(())
    }
}

/// Name of a node of the scheduler tier.
pub(super) fn object_name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index) if index < 26 => format!("node-{}", char::from(b'a' + index)),
        _ => format!("node-{}", index + 1),
    }
}
