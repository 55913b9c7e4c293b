use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::KubernetesVersion;
use crate::progress::Progress;

/// How much of a cluster is real.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A real control plane; nodes are API objects and pods do not run. Needs no root.
    #[default]
    Scheduler,
    /// Also real kubelets and containerd; pods run. Needs root, namespaces and overlayfs.
    Node,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "scheduler",
            Self::Node => "node",
        })
    }
}

/// Flags for the components in addition to the harness's, each as `--name=value`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExtraFlags {
    /// Feature gates for kube-apiserver, kube-controller-manager and kube-scheduler.
    pub feature_gates: BTreeMap<String, bool>,
    /// For kube-apiserver.
    pub api_server: Vec<String>,
    /// For kube-controller-manager.
    pub controller_manager: Vec<String>,
    /// For kube-scheduler.
    pub scheduler: Vec<String>,
    /// For each kubelet.
    pub kubelet: Vec<String>,
}

/// The kind of cluster to start.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The real part of the cluster.
    pub tier: Tier,
    /// The version of its control plane and its kubelets.
    pub kubernetes: KubernetesVersion,
    /// Number of nodes: in the node tier 1 to 8 (0 counts as 1), in the scheduler tier any number of API objects,
    /// named `node-a`, `node-b`, … or, from the 27th on, `node-27`, ….
    pub nodes: usize,
    /// Flags for the components.
    pub extra: ExtraFlags,
    /// Whether to include helm.
    pub helm: bool,
    /// Whether the API server logs requests of service accounts: [`Cluster::rights_used`](super::Cluster::rights_used).
    pub audit: bool,
    /// Receives progress reports.
    pub progress: Progress,
}

impl ClusterOptions {
    /// A control plane with this many nodes as mere API objects.
    pub fn scheduler_tier(nodes: usize) -> Self {
        Self { tier: Tier::Scheduler, kubernetes: KubernetesVersion::of_tests(), nodes, ..Self::default() }
    }

    /// A control plane with this many real nodes.
    pub fn node_tier(nodes: usize) -> Self {
        Self { tier: Tier::Node, kubernetes: KubernetesVersion::of_tests(), nodes, ..Self::default() }
    }
}
