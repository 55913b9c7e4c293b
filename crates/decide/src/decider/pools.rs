//! What is said of GPU pools.

use std::collections::{BTreeMap, BTreeSet};

use tessera_cluster::Key;

use super::Decider;
use crate::demand::Demand;
use crate::summary::{self, PoolSummary, Shape};

/// Shapes of unmet demand that a pool's status has.
const MOST_SHAPES: usize = 16;

impl Decider {
    /// What is to be said of each GpuPool that a node reports.
    pub fn pools(&mut self) -> BTreeMap<String, PoolSummary> {
        let mut pools = summary::of_fleet(&mut self.fleet, &self.cluster, &self.driver);
        let mut shapes: BTreeMap<String, (u32, Key)> = BTreeMap::new();
        for (key, waiting) in &self.waiting {
            if let Some(text) = &waiting.shape_text
                && self.steers.get(key).is_none()
            {
                shapes.entry(text.clone()).or_insert_with(|| (0, key.clone())).0 += 1;
            }
        }
        for (text, (pods, example)) in shapes {
            let Some(pod) = self.cluster.objects().pods.get(&example).cloned() else { continue };
            let Ok(demand) = Demand::of(self.cluster.objects(), &pod) else { continue };
            for pool in self.pools_asked(&demand) {
                pools.entry(pool).or_default().unmet.push(Shape { text: text.clone(), pods });
            }
        }
        for summary in pools.values_mut() {
            summary.unmet.sort_by_key(|shape| std::cmp::Reverse(shape.pods));
            summary.unmet.truncate(MOST_SHAPES);
        }
        pools
    }

    /// The pools on whose nodes there is what the pod asks for, free or not.
    fn pools_asked(&mut self, demand: &Demand) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        for index in 0..self.fleet.len() {
            let node = self.fleet.node(index as u32);
            let Some((_, report)) = &node.report else { continue };
            let pools: BTreeSet<String> =
                report.cards.values().filter_map(|card| card.pool.clone()).collect();
            let name = node.name.clone();
            if !pools.is_subset(&asked) && self.is_ours_on(demand, &name) {
                asked.extend(pools);
            }
        }
        asked
    }
}
