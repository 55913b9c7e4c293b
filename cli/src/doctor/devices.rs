//! Slices, devices and GpuPools.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceName, managed, taint};

use super::{Facts, Finding, error, warning};
use crate::devices;
use crate::pools::PoolView;
use crate::reports;

/// What is wrong with what nodes publish.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let slices = || facts.objects.slices.values().filter(|slice| slice.spec.driver == facts.driver);
    // Of each pool, the newest generation, and how many slices of it there are.
    let mut pools: BTreeMap<&str, (i64, i64, i64, Option<&str>)> = BTreeMap::new();
    for slice in slices() {
        let pool = &slice.spec.pool;
        let known = pools.entry(&pool.name).or_insert((pool.generation, pool.resource_slice_count, 0, None));
        if pool.generation > known.0 {
            *known = (pool.generation, pool.resource_slice_count, 0, None);
        }
        if pool.generation == known.0 {
            known.2 += 1;
            known.3 = slice.spec.node_name.as_deref();
        }
    }
    for (pool, (_, wanted, there, node)) in pools {
        if there != wanted && node.is_none_or(|node| facts.is_asked(node)) {
            found.push(error(
                format!("pool {pool}"),
                format!(
                    "{there} of its {wanted} ResourceSlices are there: kube-scheduler allocates nothing of it"
                ),
                "the plugin's log says why the others are refused, if it lasts for more than seconds",
            ));
        }
    }
    let (reports, _) = reports::reports(slices());
    let unhealthy = format!("{}/{}", facts.driver, taint::UNHEALTHY);
    let mut told = BTreeSet::new();
    for place in devices::devices(slices()) {
        let node = place.node().to_owned();
        let Some(card) = place.device.name.parse::<DeviceName>().ok().map(|name| name.card()) else {
            continue;
        };
        if !facts.is_asked(&node) || !told.insert((node.clone(), card)) {
            continue;
        }
        let taints = || place.device.taints.iter().flatten();
        for sick in taints().filter(|taint| taint.key == unhealthy) {
            found.push(error(
                format!("node {node}"),
                format!("card {card} gets no work: {}", sick.value.as_deref().unwrap_or("unhealthy")),
                "see the node's Events; docs/health.md says what helps, and what ends it",
            ));
        }
        let report = reports.get(node.as_str()).and_then(|report| report.report.cards.get(&card));
        let is_managed = report.is_some_and(|card| card.allocation == Allocation::Managed);
        if is_managed && !taints().any(|taint| taint.key == managed::TAINT_KEY) {
            found.push(error(
                format!("node {node}"),
                format!(
                    "card {card} is of a managed pool and has no taint {}: kube-scheduler allocates it, too",
                    managed::TAINT_KEY
                ),
                "is the feature gate DRADeviceTaints on in kube-apiserver?",
            ));
        }
    }
    found
}

/// GpuPools that do not do what they should.
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
