//! Status summary of each GpuPool.

mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::kubernetes::{KubernetesVersion, SLOW_FROM_NODES};
use tessera_cluster::Cluster;
use tessera_placement::fleet::{Fleet, NodeIndex};
use tessera_placement::node_cards::WHOLE;

pub use verdict::PoolVerdict;

/// State of one GpuPool over all nodes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PoolSummary {
    /// Nodes with a card of this pool.
    pub nodes: u32,
    /// Cards of this pool.
    pub cards: u32,
    /// Published devices of these cards.
    pub offered: u32,
    /// Allocated thousandths of cards.
    pub allocated: u64,
    /// Free thousandths of cards without any allocatable device.
    pub unallocatable: u64,
    /// Unmet demand of waiting pods, most pods first.
    pub unmet: Vec<Shape>,
    /// Pools owning cards also selected by this pool.
    pub outranked_by: BTreeSet<String>,
    /// Devices published in an outdated form, and kept so because claims hold them.
    pub waits_for: u32,
    /// Extended resources its cards could provide but nobody does: all cards are managed, and claims of extended resources are
    /// created and allocated by kube-scheduler alone.
    pub unprovided: BTreeSet<String>,
    /// Highest priority of pods waiting while pods of lower priority hold cards of this pool from kube-scheduler. kube-scheduler
    /// evicts nobody for devices.
    pub passed_by: Option<i32>,
    /// Errors reported by nodes, each with the number of nodes.
    pub errors: BTreeMap<String, u32>,
    /// Advice of nodes on settings in effect but hardly intended, each with the number of nodes.
    pub advice: BTreeMap<String, u32>,
    /// Number of nodes with counters in the whole cluster, if this pool has some and the number makes kube-scheduler slow.
    pub too_many_counters: Option<u32>,
}

/// Pods waiting for the same devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Demand of each pod: `4 x gpu.tessera.dev`.
    pub text: String,
    /// Number of pods.
    pub pods: u32,
}

/// Summaries by pool, without unmet demand.
pub(crate) fn of_fleet(fleet: &mut Fleet, cluster: &Cluster, driver: &str) -> BTreeMap<String, PoolSummary> {
    let mut all: BTreeMap<String, PoolSummary> = BTreeMap::new();
    // Pools of nodes with counters, and the number of these nodes whose release makes counters cost every node.
    let (mut with_counters, mut costly) = (BTreeSet::new(), 0);
    for index in 0..fleet.len() as NodeIndex {
        let used = fleet.cards(index, cluster, driver).clone();
        let Some((_, report)) = &fleet.node(index).report else { continue };
        let mut pools: BTreeSet<&str> = BTreeSet::new();
        for (pci, card) in &report.cards {
            let Some(pool) = &card.pool else { continue };
            pools.insert(pool);
            for other in &card.outranked {
                all.entry(other.clone()).or_default().outranked_by.insert(pool.clone());
            }
            let summary = all.entry(pool.clone()).or_default();
            summary.cards += 1;
            summary.waits_for += u32::try_from(card.waits_for.len()).unwrap_or(u32::MAX);
            let Some(used) = used.cards.get(pci) else { continue };
            summary.offered += used.devices;
            summary.allocated += u64::from(used.used);
            if !used.is_allocatable {
                summary.unallocatable += u64::from(WHOLE - used.used);
            }
        }
        let mut devices = cluster.inventory().devices_of_node(&fleet.node(index).name);
        if devices.any(|device| device.counters().next().is_some()) {
            let version = report.kubernetes.as_deref().and_then(|text| KubernetesVersion::of(text).ok());
            costly += u32::from(version.is_some_and(KubernetesVersion::counters_cost_every_node));
            with_counters.extend(pools.iter().map(|pool| (*pool).to_owned()));
        }
        for pool in pools {
            all.entry(pool.to_owned()).or_default().nodes += 1;
        }
        for (pool, said) in &report.pools {
            if let Some(error) = &said.error {
                *all.entry(pool.clone()).or_default().errors.entry(error.clone()).or_default() += 1;
            }
            if let Some(advice) = &said.advice {
                *all.entry(pool.clone()).or_default().advice.entry(advice.clone()).or_default() += 1;
            }
        }
    }
    if costly as usize >= SLOW_FROM_NODES {
        for pool in with_counters {
            all.entry(pool).or_default().too_many_counters = Some(costly);
        }
    }
    all
}
