//! Slices, devices and GpuPools.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tessera_api::{DeviceName, PciBusId, managed, taint};
use tessera_cluster::ClaimExt;

use super::{Facts, Finding, error, warning};
use crate::output::counted;
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
                    "only {} of {} found: kube-scheduler allocates nothing from this pool",
                    pool.there,
                    counted(usize::try_from(pool.wanted).unwrap_or_default(), "ResourceSlice")
                ),
                "if this lasts longer than seconds, the plugin's log has the reason",
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
                    warning(
                        &about,
                        format!("card {address} waits for its MIG layout and gets no new claims{held}"),
                        advice(sick),
                    )
                } else {
                    error(
                        &about,
                        format!("card {address} has a fault and gets no new claims: {sick}{held}"),
                        advice(sick),
                    )
                });
            }
            if pool.managed.contains(address) && !card.is_tainted {
                found.push(error(
                    &about,
                    format!(
                        "card {address} is in a managed pool but lacks the taint {}: kube-scheduler allocates it, \
                         too",
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
            "the layout is applied once the card is free; the node's Events name the obstacle (docs/mig-layouts.md)"
        }
        _ => "see the node's Events; for causes and remedies see docs/health.md",
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
            "the API server does not know this kind: all cards are offered without pools",
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
