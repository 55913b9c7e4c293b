//! Nodes: versions of their kubelets and container runtimes, and other owners of their cards.

use tessera_cluster::Key;

use super::versions::parsed;
use super::{Facts, Finding, error, owners, runtime, warning};

/// Problems of nodes with cards.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (Key { name, .. }, node) in facts.objects.nodes.iter().filter(|(key, _)| facts.is_asked(&key.name)) {
        let drivers = facts.published.drivers_of(name);
        if !drivers.contains(facts.driver) {
            continue;
        }
        let about = format!("node {name}");
        let status = node.status.as_ref();
        let kubelet =
            status.and_then(|status| status.node_info.as_ref()).map(|info| info.kubelet_version.as_str());
        if let Some(kubelet) = kubelet.filter(|kubelet| parsed(kubelet).is_some_and(|known| known < (1, 34)))
        {
            found.push(error(
                &about,
                format!("kubelet {kubelet} is too old: it cannot prepare claims of resource.k8s.io/v1"),
                "upgrade the kubelet to 1.34 or newer",
            ));
        }
        let info = status.and_then(|status| status.node_info.as_ref());
        found.extend(info.and_then(|info| runtime::finding(&about, &info.container_runtime_version)));
        if facts.published.cgroup_version(name) == Some(1) {
            // KEP-5573: not by default since 1.35, and not at all from 1.38 at the earliest.
            found.push(warning(
                &about,
                "uses cgroup v1: kubelets since 1.35 start on it only with failCgroupV1: false, later ones not at \
                 all",
                "switch the node to cgroup v2: boot with systemd.unified_cgroup_hierarchy=1",
            ));
        }
        if let Some(version) = facts.published.unsafe_container_toolkit(name) {
            found.push(warning(
                &about,
                format!(
                    "NVIDIA container toolkit {version} lets an image run code as root on the node \
                     (CVE-2025-23266); Tessera does not use the toolkit, NVIDIA's runtime does"
                ),
                "update nvidia-container-toolkit to 1.17.8 or newer",
            ));
        }
        found.extend(owners::findings(name, node, &drivers, facts.driver));
        let conditions = status.and_then(|status| status.conditions.as_ref());
        if conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status != "True")
        {
            found.push(warning(
                &about,
                "not ready: no pod starts there",
                format!("kubectl describe node {name}"),
            ));
        }
    }
    found
}
