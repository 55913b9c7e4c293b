//! The controller's part in a pod's placement: its gate, the nodes considered, the node proposed.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::gpu_pool::Allocation;
use tessera_api::waiting::WAITING_ANNOTATION;
use tessera_cluster::outcome::Reason;
use tessera_cluster::subject::Subject;
use tessera_cluster::{Cluster, PodExt};

use super::NodeDiagnosis;
use crate::api_server::{Controller, ControllerEvent, News};
use crate::{reports, subject};

/// The controller's part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Steering {
    /// Whether its gate is on the pod.
    pub gated: bool,
    /// Gates of other controllers; ours waits for their removal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_gates: Vec<String>,
    /// Whether a controller runs, if readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
    /// The controller's last Event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<ControllerEvent>,
    /// For a pod with the gate: nodes with suitable labels and taints, by the GpuPools of their cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolNodes>,
    /// `status.nominatedNodeName`: kube-scheduler tries this node first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated: Option<Nominated>,
}

/// Nodes with cards of a pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolNodes {
    /// The pool; `None` for cards of no pool.
    pub pool: Option<String>,
    /// Allocator of its cards.
    pub allocation: Allocation,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// A proposed node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nominated {
    /// The node.
    pub node: String,
    /// Why the pod does not fit there; absent if the pod fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether the node is among the nodes of this answer.
    pub is_known: bool,
}

impl Steering {
    /// Whether the controller has a part in the pod's placement: the pod has its gate, a proposed node and none of its own
    /// yet, or the controller's reason why it waits.
    pub fn concerns(subject: &Subject) -> bool {
        subject::is_steered(subject) || nominated(subject).is_some() || is_noted(subject)
    }
}

/// Whether the controller wrote the wait reason on the pod.
fn is_noted(subject: &Subject) -> bool {
    let pod = subject.pod.as_ref().filter(|pod| pod.node_name().is_none());
    let annotations = pod.and_then(|pod| pod.metadata.annotations.as_ref());
    annotations.is_some_and(|annotations| annotations.contains_key(WAITING_ANNOTATION))
}

/// The proposed node of an unbound pod.
fn nominated(subject: &Subject) -> Option<String> {
    let pod = subject.pod.as_ref()?;
    let nominated = pod.nominated_node().filter(|node| !node.is_empty() && pod.node_name().is_none());
    nominated.map(str::to_owned)
}

/// The controller's part, if any.
pub fn of(
    cluster: &Cluster,
    subject: &Subject,
    nodes: &[NodeDiagnosis],
    news: Option<News>,
) -> Option<Steering> {
    if !Steering::concerns(subject) {
        return None;
    }
    let gated = subject::is_steered(subject);
    let News { controller, event, .. } = news.unwrap_or_default();
    let nominated = nominated(subject).map(|name| {
        let node = nodes.iter().find(|node| node.outcome.node == name);
        let is_known = node.is_some();
        Nominated { reason: node.and_then(|node| node.outcome.reason.clone()), is_known, node: name }
    });
    Some(Steering {
        gated,
        other_gates: subject::other_gates(subject),
        controller,
        event,
        pools: if gated { pools(cluster, nodes) } else { Vec::new() },
        nominated,
    })
}

fn pools(cluster: &Cluster, nodes: &[NodeDiagnosis]) -> Vec<PoolNodes> {
    let (reports, _) = reports::reports(cluster.objects().slices.values());
    let mut by_pool: BTreeMap<Option<String>, (Allocation, Vec<String>)> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !matches!(node.outcome.reason, Some(Reason::Node(_)))) {
        let name = &node.outcome.node;
        let Some(report) = reports.get(name.as_str()) else { continue };
        for card in report.report.cards.values() {
            let (_, nodes) =
                by_pool.entry(card.pool.clone()).or_insert_with(|| (card.allocation, Vec::new()));
            if nodes.last() != Some(name) {
                nodes.push(name.clone());
            }
        }
    }
    let pools = by_pool.into_iter();
    pools.map(|(pool, (allocation, nodes))| PoolNodes { pool, allocation, nodes }).collect()
}
