//! Counters on so many nodes as to slow kube-scheduler down.

use tessera_api::kubernetes::{KubernetesVersion, SLOW_FROM_NODES};

use super::{Facts, Finding, warning};

/// Findings about counters.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(live) = facts.live else { return Vec::new() };
    // A kube-scheduler outside pods is assumed to have the API server's version.
    let api_server = live.version.as_deref().filter(|_| live.schedulers.is_empty());
    let versions = live.schedulers.values().map(String::as_str).chain(api_server);
    let nodes = facts.published.pools().filter(|(_, pool)| pool.has_counters).count();
    versions.filter_map(|version| too_many(version, nodes)).take(1).collect()
}

fn too_many(version: &str, nodes: usize) -> Option<Finding> {
    let is_slow = KubernetesVersion::of(version).is_ok_and(KubernetesVersion::counters_cost_every_node);
    (is_slow && nodes >= SLOW_FROM_NODES).then(|| {
        warning(
            "kube-scheduler",
            format!(
                "{nodes} nodes offer more than whole cards: with counters on {SLOW_FROM_NODES} nodes or more, \
                 version {version} takes over a second for each pod with devices"
            ),
            "upgrade to Kubernetes 1.37; or let GpuPools of fewer nodes offer partitions and shares; or set allocation Steered or Managed (docs/gpu-pools.md)",
        )
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tessera_cluster::Objects;

    use super::*;
    use crate::doctor::Live;
    use crate::doctor::published::Published;

    #[test]
    fn counters_on_too_many_nodes_are_told_before_1_37() {
        let told = |nodes: usize, version: &str| {
            let objects = Objects::default();
            let mut published = Published::new("gpu.tessera.dev", &objects, KubernetesVersion::default());
            for number in 0..nodes {
                let slice = serde_json::json!({ "metadata": { "name": number.to_string() }, "spec": { "driver": "gpu.tessera.dev",
                    "nodeName": number.to_string(), "pool": { "name": number.to_string(), "generation": 1, "resourceSliceCount": 1 },
                    "sharedCounters": [{ "name": "c", "counters": { "m": { "value": "1" } } }] } });
                published.add(&serde_json::from_value(slice).unwrap());
            }
            let live = Live { version: Some(version.to_owned()), ..Live::default() };
            let facts = Facts {
                objects: &objects,
                published: &published,
                pools: None,
                live: Some(&live),
                driver: "gpu.tessera.dev",
                node: None,
                now: Timestamp::UNIX_EPOCH,
            };
            findings(&facts).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert!(told(50, "v1.36.6")[0].starts_with("50 nodes offer"));
        for (nodes, version) in [(49, "v1.36.6"), (500, "v1.37.2"), (500, "v1.38.0")] {
            assert_eq!(told(nodes, version), [""; 0], "{version}");
        }
    }
}
