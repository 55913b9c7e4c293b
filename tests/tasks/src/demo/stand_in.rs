//! The demo without root: no kubelet and no containers. The real plugin runs beside the real control plane, and for
//! bound pods a stand-in does the kubelet's work: calls to the plugin, and updates of the pods' status.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tessera_harness::{
    Cluster,
    installation::Installation,
    node_stand_in::{Machine, NodeStandIn, PodsOfNode, PreparedPod},
};

use super::{NAMESPACE, view::ContainerView};

/// The only node of a cluster of the scheduler tier.
const NODE: &str = "node-a";

/// The stand-in for the kubelet of the only node.
pub struct StandIn {
    pods: PodsOfNode,
}

/// Starts the plugin on an emulated machine, configured as in the chart's pod, and the stand-in to call the plugin.
///
/// # Errors
/// When the plugin does not start or does not register.
pub async fn start(cluster: &Cluster, tessera: &Installation, hardware: &str) -> Result<StandIn> {
    let machine = Machine { hardware: hardware.to_owned(), cards: None, mig_mode: false };
    let node = NodeStandIn::start(cluster, tessera, NODE, &machine).await?;
    Ok(StandIn { pods: node.serve(cluster.client().await?, ends_by_itself) })
}

/// True for the pods of a job.
fn ends_by_itself(pod: &Pod) -> bool {
    pod.metadata.labels.iter().flatten().any(|(key, _)| key == "batch.kubernetes.io/job-name")
}

impl StandIn {
    /// The view from the containers of the demo's pod; `None` before its claims are prepared.
    pub fn view(&self, pod: &str) -> Option<ContainerView> {
        let pods = self.pods.all();
        pods.iter().find(|known| known.namespace == NAMESPACE && known.name == pod).map(seen_in)
    }

    /// All failures, to be shown when a wait times out.
    pub fn failures(&self) -> Vec<String> {
        self.pods.failures()
    }
}

/// The result of applying the edits of a pod's CDI devices, as a container runtime would.
fn seen_in(pod: &PreparedPod) -> ContainerView {
    let texts = |key: &str| -> Vec<Value> {
        pod.container_edits
            .iter()
            .flat_map(|edits| edits[key].as_array().cloned().unwrap_or_default())
            .collect()
    };
    let variables = texts("env");
    let environment: BTreeMap<String, String> = variables
        .iter()
        .filter_map(|variable| variable.as_str()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let nodes: BTreeSet<String> =
        texts("deviceNodes").iter().filter_map(|node| node["path"].as_str().map(str::to_owned)).collect();
    ContainerView::new(environment, nodes)
}
