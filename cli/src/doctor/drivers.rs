//! Versions of NVIDIA's driver, as nodes publish them.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::version::MINIMUM_DRIVER;

use super::versions::parsed;
use super::{Facts, Finding, error, warning};

/// Limit of nodes named for a version; beyond the limit only their number is shown.
const NAMED: usize = 3;

/// Nodes whose driver is too old, or differs from the majority's.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, pool) in facts.published.pools() {
        let node = pool.node.as_deref().filter(|node| facts.is_asked(node));
        if let (Some(node), Some(version)) = (node, pool.driver_version.as_deref()) {
            nodes.entry(version).or_default().insert(node);
        }
    }
    let mut found = Vec::new();
    for (version, nodes) in &nodes {
        if parsed(version).is_some_and(|(branch, _)| branch < MINIMUM_DRIVER) {
            found.extend(nodes.iter().map(|node| {
                error(
                    format!("node {node}"),
                    format!("NVIDIA driver {version} is too old: Tessera needs {MINIMUM_DRIVER} or newer"),
                    "upgrade the driver",
                )
            }));
        }
    }
    if nodes.len() > 1 {
        let mut all: Vec<_> = nodes.iter().collect();
        all.sort_by_key(|(version, nodes)| (std::cmp::Reverse(nodes.len()), **version));
        let each: Vec<String> = all.into_iter().map(|(version, nodes)| told(version, nodes)).collect();
        found.push(warning(
            "NVIDIA driver",
            format!("nodes have {} different versions: {}", nodes.len(), each.join("; ")),
            "a claim may get a card with any of them: use one version, or select by driverVersion or \
             cudaDriverVersion (docs/devices.md)",
        ));
    }
    found
}

fn told(version: &str, nodes: &BTreeSet<&str>) -> String {
    if nodes.len() > NAMED {
        return format!("{version} on {} nodes", nodes.len());
    }
    let names: Vec<&str> = nodes.iter().copied().collect();
    format!("{version} on {}", names.join(", "))
}
