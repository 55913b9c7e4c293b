//! Slices, devices, DeviceClasses and GpuPools.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::DeviceTaint;
use tessera_api::gpu_pool::Allocation;
use tessera_api::{DeviceName, managed, taint};
use tessera_cel::Selector;

use super::{Facts, Finding, error, warning};
use crate::devices::{self, Place};
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
        let sick = |taint: &DeviceTaint| taint::fault_name(&facts.driver, &taint.key, taint.value.as_deref());
        for sick in taints().filter_map(sick) {
            found.push(error(
                format!("node {node}"),
                format!("card {card} gets no work: {}", sick),
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

/// DeviceClasses that no device matches.
pub fn classes(facts: &Facts<'_>) -> Vec<Finding> {
    let places = devices::devices(facts.objects.slices.values());
    if places.is_empty() {
        return Vec::new();
    }
    let classes = facts.objects.classes.iter().filter_map(|((_, name), class)| {
        let selectors = class.spec.as_ref()?.selectors.as_ref()?;
        let expressions: Vec<&str> = selectors
            .iter()
            .filter_map(|selector| Some(selector.cel.as_ref()?.expression.as_str()))
            .collect();
        // Only classes that are about this driver: others' devices may come later.
        expressions.iter().any(|expression| expression.contains(facts.driver)).then_some((name, expressions))
    });
    let kinds = devices::kinds(&places);
    let mut found = Vec::new();
    for (name, expressions) in classes {
        let compiled: Result<Vec<Selector>, _> =
            expressions.iter().map(|expression| Selector::compile(expression)).collect();
        match compiled {
            Err(wrong) => found.push(error(
                format!("DeviceClass {name}"),
                format!("its selector is wrong: {}", wrong.to_string().lines().next().unwrap_or_default()),
                "correct it; kubectl gpu cel EXPRESSION tries one",
            )),
            Ok(selectors) if !is_matched(&selectors, &expressions, &places, &kinds) => found.push(warning(
                format!("DeviceClass {name}"),
                "no device matches it: pods that ask for it wait",
                format!(
                    "kubectl gpu cel '{}' -v says which devices fail it and where",
                    expressions.join(" && ")
                ),
            )),
            Ok(_) => {}
        }
    }
    found
}

fn is_matched(
    selectors: &[Selector],
    expressions: &[&str],
    places: &[Place<'_>],
    kinds: &[&Place<'_>],
) -> bool {
    if expressions.iter().any(|expression| devices::asks_for_own(expression)) {
        return places.iter().any(|place| devices::matches(selectors, place));
    }
    kinds.iter().any(|place| devices::matches(selectors, place))
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
