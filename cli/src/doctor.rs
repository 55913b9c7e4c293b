//! Problems of Tessera in a cluster, and their remedies.

mod asked;
mod claims;
mod classes;
mod control_plane;
mod conversion;
mod counters;
mod devices;
mod drivers;
mod extended_resources;
mod kueue;
mod nodes;
mod owners;
mod plugins;
pub mod published;
mod runtime;
mod unasked;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tessera_api::gpu_pool::GpuPool;
use tessera_cluster::{Key, Objects};

use crate::api_server::Controller;
use crate::unasked::Unasked;
pub use kueue::{KueueSettings, QueuedTwice};
use published::Published;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Pods wait, or will, or cards are out of use.
    Error,
    /// A function does not work as may be expected.
    Warning,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Severity of the problem.
    pub severity: Severity,
    /// The affected object: `node node-a`, `DeviceClass gpu`.
    pub about: String,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub todo: String,
}

/// Facts from a running cluster only. Unreadable facts are absent.
#[derive(Debug, Default)]
pub struct Live {
    /// The API server's version: `v1.36.3`.
    pub version: Option<String>,
    /// Versions of kube-schedulers by pod, where kubelets run them.
    pub schedulers: BTreeMap<String, String>,
    /// Kubernetes' feature gates, as the API server has them.
    pub gates: Option<BTreeMap<String, bool>>,
    /// Whether a controller leads.
    pub controller: Option<Controller>,
    /// Names of ValidatingAdmissionPolicies with a binding.
    pub policies: Option<Vec<String>>,
    /// Who asked for claims in place of extended resources, and whether a policy makes them; `None` if unreadable.
    pub conversion: Option<Conversion>,
    /// Number of plugins' pods; `None` where pods of the whole cluster may not be listed.
    pub plugins: Option<usize>,
    /// kube-scheduler's messages about unschedulable pods, by namespace and name.
    pub unschedulable: BTreeMap<Key, String>,
    /// `/readyz` answers of unready plugins, by pod.
    pub readyz: BTreeMap<String, String>,
    /// Pods with visible cards but no request; `None` if pods of the whole cluster may not be listed.
    pub unasked: Option<Vec<Unasked>>,
    /// Namespaces whose jobs both Kueue and a GpuQuota order.
    pub queued_twice: Vec<QueuedTwice>,
    /// Settings of Kueue, where it is installed and they may be read.
    pub kueue: Option<KueueSettings>,
    /// The API server's clock less this machine's, in seconds.
    pub clock: Option<i64>,
}

/// Extended resources to be turned into claims.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Namespaces that opted in by their label.
    pub namespaces: Vec<String>,
    /// Names of MutatingAdmissionPolicies with a binding.
    pub policies: Vec<String>,
}

/// Inputs of the checks.
pub struct Facts<'f> {
    /// The objects, but for ResourceSlices.
    pub objects: &'f Objects,
    /// Extract of the ResourceSlices.
    pub published: &'f Published,
    /// GpuPools; `None` where there is no such kind.
    pub pools: Option<&'f BTreeMap<Key, GpuPool>>,
    /// Facts from a running cluster; `None` for objects of files.
    pub live: Option<&'f Live>,
    /// The driver.
    pub driver: &'f str,
    /// Only this node, where one is named.
    pub node: Option<&'f str>,
    /// The time.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// Whether the node is one to look at.
    fn is_asked(&self, node: &str) -> bool {
        self.node.is_none_or(|asked| asked == node)
    }

    /// Nodes with a kubelet plugin's pod; `None` if unknown.
    fn plugin_nodes(&self) -> Option<BTreeSet<&str>> {
        let are_known = self.pods_of("kubelet-plugin").next().is_some()
            || self.live.is_some_and(|live| live.plugins.is_some());
        let nodes = self.pods_of("kubelet-plugin").filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
        are_known.then(|| nodes.collect())
    }

    /// Pods of a part of Tessera.
    fn pods_of(&self, component: &str) -> impl Iterator<Item = &Pod> {
        self.objects.pods.values().map(AsRef::as_ref).filter(move |pod| is_of(pod, component))
    }
}

/// Whether the pod is of this part of Tessera, by the chart's labels.
pub fn is_of(pod: &Pod, component: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let is =
        |name: &str, value: &str| labels.is_some_and(|all| all.get(name).is_some_and(|found| found == value));
    is("app.kubernetes.io/name", "tessera") && is("app.kubernetes.io/component", component)
}

/// All problems, the worst first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.node.is_none() {
        found.extend(versions::findings(facts));
        found.extend(control_plane::findings(facts));
        found.extend(counters::findings(facts));
        found.extend(classes::findings(facts));
        found.extend(devices::pools(facts));
        found.extend(extended_resources::findings(facts));
        found.extend(kueue::findings(facts));
        found.extend(conversion::findings(facts));
    }
    found.extend(nodes::findings(facts));
    found.extend(drivers::findings(facts));
    found.extend(plugins::findings(facts));
    found.extend(devices::findings(facts));
    found.extend(claims::findings(facts));
    found.extend(unasked::findings(facts));
    found.sort_by(|one, other| {
        (one.severity, &one.about, &one.what).cmp(&(other.severity, &other.about, &other.what))
    });
    found
}

fn error(about: impl Into<String>, what: impl Into<String>, todo: impl Into<String>) -> Finding {
    Finding { severity: Severity::Error, about: about.into(), what: what.into(), todo: todo.into() }
}

fn warning(about: impl Into<String>, what: impl Into<String>, todo: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, ..error(about, what, todo) }
}
