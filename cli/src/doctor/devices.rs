//! Slices, devices and GpuPools.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::{DeviceName, PciBusId, managed, taint};
use tessera_cluster::ClaimExt;

use super::{Facts, Finding, error, warning};
use crate::pools::PoolView;

/// Problems of published devices.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, pool) in facts.published.pools() {
        let node = pool.node.as_deref();
        if !node.is_none_or(|node| facts.is_asked(node)) {
            continue;
        }
        if pool.there != pool.wanted {
            found.push(error(
                format!("pool {name}"),
                format!(
                    "{} of its {} ResourceSlices are there: kube-scheduler allocates nothing of it",
                    pool.there, pool.wanted
                ),
                "the plugin's log says why the others are refused, if it lasts for more than seconds",
            ));
        }
        let about = format!("node {}", node.unwrap_or("<none>"));
        for (address, card) in &pool.cards {
            if let Some(sick) = &card.sick {
                let holders = users_of(facts, name, address);
                let held = if holders.is_empty() {
                    String::new()
                } else {
                    format!(", in use by {}", holders.join(", "))
                };
                found.push(if sick == taint::MIG_LAYOUT_PENDING {
                    warning(&about, format!("card {address} waits for its MIG layout{held}"), advice(sick))
                } else {
                    error(&about, format!("card {address} gets no work: {sick}{held}"), advice(sick))
                });
            }
            if pool.managed.contains(address) && !card.is_tainted {
                found.push(error(
                    &about,
                    format!(
                        "card {address} is of a managed pool and has no taint {}: kube-scheduler allocates it, too",
                        managed::TAINT_KEY
                    ),
                    "is the feature gate DRADeviceTaints on in kube-apiserver?",
                ));
            }
        }
    }
    found
}

/// Remedy for a faulty card, by the name of its fault.
fn advice(fault: &str) -> &'static str {
    match fault {
        taint::MIG_LAYOUT_PENDING => {
            "its MIG layout waits until the card is free; the node's Events name what is in the way (docs/mig-layouts.md)"
        }
        _ => "see the node's Events; docs/health.md says what helps, and what ends it",
    }
}

/// Users of a card's devices: pods, or claims not reserved for any pod.
fn users_of(facts: &Facts<'_>, pool: &str, card: &PciBusId) -> Vec<String> {
    let mut users = BTreeSet::new();
    for (key, claim) in &facts.objects.claims {
        let is_of_card = |result: &DeviceRequestAllocationResult| {
            result.driver == facts.driver
                && result.pool == pool
                && result.device.parse::<DeviceName>().is_ok_and(|name| name.card() == *card)
        };
        if !claim.results().iter().any(is_of_card) {
            continue;
        }
        if !claim.is_reserved() {
            users.insert(format!("claim {key}"));
        }
        let kind = |resource: &str| resource.trim_end_matches('s').to_owned();
        users.extend(
            claim
                .users()
                .iter()
                .map(|user| format!("{} {}/{}", kind(&user.resource), key.namespace, user.name)),
        );
    }
    users.into_iter().collect()
}

/// GpuPools not in the desired state.
pub fn pools(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(pools) = facts.pools else {
        return vec![warning(
            "GpuPools",
            "the API server has no such kind: every card is offered as if there were no pools",
            "install the chart's CustomResourceDefinition (docs/installing.md)",
        )];
    };
    let views = pools.values().map(PoolView::of).filter(|view| !view.is_ready());
    let finding = |view: PoolView| {
        let message = view.ready().map(|condition| condition.message.clone()).unwrap_or_default();
        let what = format!("{}: {message}", view.state());
        warning(
            format!("GpuPool {}", view.name),
            what.trim_end_matches(": "),
            format!("kubectl gpu pools {}", view.name),
        )
    };
    views.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_explained_where_its_page_is() {
        assert!(advice("mig-layout-pending").contains("docs/mig-layouts.md"));
        assert!(advice("xid-79").contains("docs/health.md"));
    }
}
