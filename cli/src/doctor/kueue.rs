//! Namespaces whose jobs are ordered twice: by Kueue, and by the team of a GpuQuota.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use tessera_api::gpu_quota::GpuQuota;
use tessera_cluster::Key;

use super::{Facts, Finding, warning};

/// A namespace with LocalQueues of Kueue, selected by a GpuQuota.
#[derive(Debug, PartialEq, Eq)]
pub struct QueuedTwice {
    /// The namespace.
    pub namespace: String,
    /// Names of the LocalQueues.
    pub queues: BTreeSet<String>,
    /// Name of the first GpuQuota selecting the namespace.
    pub quota: String,
}

impl QueuedTwice {
    /// The namespaces of these queues that a quota selects.
    pub fn of(
        queues: &[DynamicObject],
        namespaces: &[Namespace],
        quotas: &BTreeMap<Key, GpuQuota>,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        for namespace in namespaces {
            let name = namespace.name_any();
            let of_namespace =
                queues.iter().filter(|queue| queue.metadata.namespace.as_deref() == Some(&*name));
            let queues: BTreeSet<String> = of_namespace.map(DynamicObject::name_any).collect();
            let labels = namespace.labels();
            let quota = quotas.iter().find(|(_, quota)| quota.spec.selects_namespace(labels));
            if let Some((quota, _)) = quota.filter(|_| !queues.is_empty()) {
                found.push(QueuedTwice { namespace: name, queues, quota: quota.name.clone() });
            }
        }
        found
    }
}

/// Such namespaces.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let all = facts.live.into_iter().flat_map(|live| &live.queued_twice);
    let finding = |QueuedTwice { namespace, queues, quota }: &QueuedTwice| {
        let queues = queues.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        warning(
            format!("namespace {namespace}"),
            format!("two queues order its jobs: Kueue's ({queues}), and the one of GpuQuota {quota}"),
            "let one of them order: a job that Kueue admits may still wait for its team's turn or limit; with Kueue, give the \
             GpuQuota limits alone (docs/gpu-quotas.md)",
        )
    };
    all.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_namespaces_with_both_are_told() {
        let namespace = |name: &str, team: &str| -> Namespace {
            let metadata = json!({ "name": name, "labels": { "team": team } });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let queue = |namespace: &str| -> DynamicObject {
            let metadata = json!({ "name": "train", "namespace": namespace });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let quota = json!({ "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuQuota", "metadata": { "name": "vision" },
            "spec": { "namespaceSelector": { "matchLabels": { "team": "vision" } } } });
        let quotas = [(Key::cluster("vision"), serde_json::from_value(quota).unwrap())].into();
        let namespaces = [namespace("v1", "vision"), namespace("v2", "vision"), namespace("n1", "nlp")];
        let found = QueuedTwice::of(&[queue("v1"), queue("n1")], &namespaces, &quotas);
        let both = QueuedTwice {
            namespace: "v1".to_owned(),
            queues: ["train".to_owned()].into(),
            quota: "vision".to_owned(),
        };
        assert_eq!(found, [both]);
    }
}
