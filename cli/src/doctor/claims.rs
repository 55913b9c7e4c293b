//! Claims with missing, unpreparable or unused devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::device_status::READY;
use tessera_cluster::ClaimExt;

use super::{Facts, Finding, error, warning};
use crate::output::counted;

/// Age after which a claim with devices but without pods is reported, in seconds.
const UNUSED: i64 = 3600;

/// Problems of claims with devices of the driver.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let served = facts.plugin_nodes();
    for (key, claim) in &facts.objects.claims {
        let results: Vec<_> = claim
            .results()
            .iter()
            .filter(|result| result.driver == facts.driver)
            .filter(|result| facts.node.is_none_or(|node| result.pool.ends_with(node)))
            .collect();
        if results.is_empty() {
            continue;
        }
        let about = format!("claim {key}");
        // For a node without a plugin, one finding names all of its claims.
        let is_served = |pool: &str| {
            let served = served.as_ref().zip(node_of(facts, pool));
            served.is_none_or(|(served, node)| served.contains(node))
        };
        // While a node publishes its pool anew, some slices are missing, and their devices only seem gone.
        let is_whole = |pool: &str| facts.published.pool(pool).is_none_or(|pool| pool.there >= pool.wanted);
        let gone: Vec<&str> = results
            .iter()
            .filter(|result| is_served(&result.pool) && is_whole(&result.pool))
            .filter(|result| !facts.published.has(&result.pool, &result.device))
            .map(|result| result.device.as_str())
            .collect();
        if !gone.is_empty() {
            found.push(error(
                &about,
                format!("holds {}, but no node publishes it", gone.join(", ")),
                "delete its pods to allocate it anew; if the node is down, wait until it is back",
            ));
        }
        for (device, why) in unready(claim, facts.driver) {
            found.push(error(
                &about,
                format!("{device} cannot be prepared: {why}"),
                format!(
                    "kubectl gpu explain claim/{} -n {}; delete its pods to get another device",
                    key.name, key.namespace
                ),
            ));
        }
        if let Some(hours) = unused(claim, facts.now.as_second()) {
            found.push(warning(
                &about,
                format!("has held {} for {hours} h without a pod", counted(results.len(), "device")),
                "delete the claim if it is no longer needed",
            ));
        }
    }
    found
}

/// The claims with devices, by node.
pub fn holding<'f>(facts: &Facts<'f>) -> BTreeMap<&'f str, Vec<String>> {
    let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, claim) in &facts.objects.claims {
        let of_driver = claim.results().iter().filter(|result| result.driver == facts.driver);
        let of_claim: BTreeSet<&str> = of_driver.filter_map(|result| node_of(facts, &result.pool)).collect();
        for node in of_claim {
            nodes.entry(node).or_default().push(key.to_string());
        }
    }
    nodes
}

/// The node of a pool: its publisher, or the node in its name (`gpu.tessera.dev/node-a`).
fn node_of<'f>(facts: &Facts<'f>, pool: &'f str) -> Option<&'f str> {
    let published = facts.published.pool(pool).and_then(|pool| pool.node.as_deref());
    published.or_else(|| pool.strip_prefix(facts.driver)?.strip_prefix('/'))
}

fn unready<'c>(claim: &'c ResourceClaim, driver: &str) -> Vec<(&'c str, &'c str)> {
    let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    let of_driver = devices.filter(|device| device.driver == driver);
    let conditions = of_driver.flat_map(|device| {
        device.conditions.iter().flatten().map(move |condition| (device.device.as_str(), condition))
    });
    let failed = conditions.filter(|(_, condition)| condition.type_ == READY && condition.status == "False");
    failed.map(|(device, condition)| (device, condition.message.as_str())).collect()
}

/// Hours without a user, if many.
fn unused(claim: &ResourceClaim, now: i64) -> Option<i64> {
    let since = claim.allocated_at()?.as_second();
    (!claim.is_reserved() && now - since > UNUSED).then(|| (now - since) / 3600)
}
