//! Summaries of GPU pools.

use std::collections::{BTreeMap, BTreeSet};

use tessera_allocator::claim::{Ask, Claim, DeviceRequest, Request};
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::Key;
use tessera_placement::demand::Demand;

use super::Decider;
use crate::summary::{self, PoolSummary, Shape};

/// Limit on shapes of unmet demand in a pool's status.
const MOST_SHAPES: usize = 16;

/// Limit on shapes of unmet demand matched to pools: each match may scan all nodes.
const MOST_ASKED: usize = 256;

impl Decider {
    /// The summary of each GpuPool reported by a node.
    pub fn pools(&mut self) -> BTreeMap<String, PoolSummary> {
        let mut pools = summary::of_fleet(&mut self.fleet, &self.cluster, &self.driver);
        self.pools_by_shape.clear();
        for (text, pods, example) in self.unmet() {
            let Some(pod) = self.cluster.objects().pods.get(&example).cloned() else { continue };
            let Ok(demand) = Demand::of(self.cluster.objects(), &pod) else { continue };
            let asked = self.pools_asked(&demand);
            for pool in &asked {
                pools.entry(pool.clone()).or_default().unmet.push(Shape { text: text.clone(), pods });
            }
            self.pools_by_shape.insert(text, asked);
        }
        for (resource, class) in self.unprovided() {
            for pool in self.pools_with(|decider, node| decider.has_device_of(&class, node)) {
                pools.entry(pool).or_default().unprovided.insert(resource.clone());
            }
        }
        for (pool, priority) in self.passed_by() {
            pools.entry(pool).or_default().passed_by = Some(priority);
        }
        for summary in pools.values_mut() {
            summary.unmet.sort_by_key(|shape| std::cmp::Reverse(shape.pods));
            summary.unmet.truncate(MOST_SHAPES);
        }
        pools
    }

    /// Unmet demand by short description, with the number of pods and an example pod; most pods first.
    fn unmet(&mut self) -> Vec<(String, u32, Key)> {
        self.look_at_unplaced();
        let mut shapes: BTreeMap<&str, (u32, &Key)> = BTreeMap::new();
        let ours =
            self.waiting.iter().filter_map(|(key, waiting)| Some((key, waiting.shape_text.as_deref()?)));
        let ours = ours.filter(|(key, _)| self.ledger.pods.proposal(key).is_none());
        // Includes open pods listed as waiting only because managed cards exist.
        let others = self
            .unplaced()
            .filter(|(key, _)| self.waiting.get(*key).is_none_or(|waiting| waiting.shape_text.is_none()));
        for (key, text) in ours.chain(others) {
            shapes.entry(text).or_insert((0, key)).0 += 1;
        }
        let mut shapes: Vec<_> = shapes.into_iter().collect();
        shapes.sort_by_key(|(_, (pods, _))| std::cmp::Reverse(*pods));
        shapes.truncate(MOST_ASKED);
        shapes.into_iter().map(|(text, (pods, key))| (text.to_owned(), pods, key.clone())).collect()
    }

    /// Extended resources of DeviceClasses, each with its class, if all cards are managed: kube-scheduler cannot provide them.
    fn unprovided(&self) -> Vec<(String, String)> {
        let mut cards = self
            .fleet
            .nodes()
            .flat_map(|node| node.report.iter())
            .flat_map(|(_, report)| report.cards.values());
        if !cards.all(|card| card.allocation == Allocation::Managed) {
            return Vec::new();
        }
        let classes = self.cluster.objects().classes.values();
        let named = classes.filter_map(|class| {
            let resource = class.spec.as_ref()?.extended_resource_name.clone()?;
            Some((resource, class.metadata.name.clone()?))
        });
        named.collect()
    }

    /// Whether the node has a device of the class, free or not.
    fn has_device_of(&mut self, class: &str, node: &str) -> bool {
        let Some(node) = self.cluster.objects().node(node) else {
            return false;
        };
        let ask = DeviceRequest {
            class: class.to_owned(),
            allocation_mode: "ExactCount".to_owned(),
            count: 1,
            ..DeviceRequest::default()
        };
        let requests = vec![Request { name: "devices".to_owned(), ask: Ask::Exactly(ask) }];
        let claim = Claim { requests, ..Claim::default() };
        let claims = std::slice::from_ref(&claim);
        self.cluster.has_what_is_asked(node, claims, &self.driver, &mut self.asker).unwrap_or(false)
    }

    /// The pools with matching devices for the pod, free or not; empty until its selectors are evaluated.
    pub(super) fn pools_asked(&mut self, demand: &Demand) -> BTreeSet<String> {
        if self.is_unanswered(demand) {
            return BTreeSet::new();
        }
        self.pools_with(|decider, node| decider.is_ours_on(demand, node))
    }

    /// The pools with any node satisfying the predicate. Skips nodes whose pools are all found already.
    fn pools_with(&mut self, mut is_so: impl FnMut(&mut Self, &str) -> bool) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        for index in 0..self.fleet.len() {
            let node = self.fleet.node(index as u32);
            if node.pools().all(|pool| asked.contains(pool)) {
                continue;
            }
            let name = node.name.clone();
            if is_so(self, &name) {
                asked.extend(self.fleet.node(index as u32).pools().map(str::to_owned));
            }
        }
        asked
    }
}
