//! What is wrong with Tessera in a cluster, and what to do about it.

mod asked;
mod claims;
mod classes;
mod control_plane;
mod counters;
mod devices;
mod drivers;
mod extended_resources;
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
use published::Published;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Pods wait, or will, or cards are out of use.
    Error,
    /// Something does not work as somebody may expect.
    Warning,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: `node node-a`, `DeviceClass gpu`.
    pub about: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub todo: String,
}

/// What only a running cluster tells. What may not be read is absent.
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
    /// Names of ValidatingAdmissionPolicies that have a binding.
    pub policies: Option<Vec<String>>,
    /// Number of plugins' pods; `None` where pods of the whole cluster may not be listed.
    pub plugins: Option<usize>,
    /// What kube-scheduler says of pods that it finds no node for, by namespace and name.
    pub unschedulable: BTreeMap<Key, String>,
    /// What `/readyz` of plugins says that are not ready, by pod.
    pub readyz: BTreeMap<String, String>,
    /// Pods that see cards and have asked nobody; `None` where pods of the whole cluster may not be listed.
    pub unasked: Option<Vec<Unasked>>,
    /// The API server's clock less this machine's, in seconds.
    pub clock: Option<i64>,
}

/// What is looked at.
pub struct Facts<'f> {
    /// The objects, but for ResourceSlices.
    pub objects: &'f Objects,
    /// What was taken of ResourceSlices.
    pub published: &'f Published,
    /// GpuPools; `None` where there is no such kind.
    pub pools: Option<&'f BTreeMap<Key, GpuPool>>,
    /// What only a running cluster tells; `None` for objects of files.
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

    /// The nodes on which a kubelet plugin has a pod; `None` where that is not known.
    fn plugin_nodes(&self) -> Option<BTreeSet<&str>> {
        let are_known = self.pods_of("kubelet-plugin").next().is_some()
            || self.live.is_some_and(|live| live.plugins.is_some());
        let nodes = self.pods_of("kubelet-plugin").filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
        are_known.then(|| nodes.collect())
    }

    /// Pods of a part of Tessera.
    fn pods_of(&self, component: &str) -> impl Iterator<Item = &Pod> {
        let is_of = move |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            let is = |name: &str, value: &str| {
                labels.is_some_and(|all| all.get(name).is_some_and(|found| found == value))
            };
            is("app.kubernetes.io/name", "tessera") && is("app.kubernetes.io/component", component)
        };
        self.objects.pods.values().map(AsRef::as_ref).filter(is_of)
    }
}

/// Everything that is wrong, the worst first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.node.is_none() {
        found.extend(versions::findings(facts));
        found.extend(control_plane::findings(facts));
        found.extend(counters::findings(facts));
        found.extend(classes::findings(facts));
        found.extend(devices::pools(facts));
        found.extend(extended_resources::findings(facts));
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
