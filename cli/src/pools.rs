//! GpuPools with their status and the plugins' reports of their nodes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceSlice;
use serde::Serialize;
use tessera_api::gpu_pool::condition::{self, Condition};
use tessera_api::gpu_pool::{Allocation, GpuPool, GpuPoolSpec, GpuPoolStatus, Placement, UnmetDemand};
use tessera_api::{DeviceName, PciBusId, attribute};

use crate::reports::Report;
use crate::status::Known;

/// A pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Allocator of its cards.
    pub allocation: Allocation,
    /// How nodes are chosen.
    pub placement: Placement,
    /// Of several pools selecting a card, the one with the highest priority decides.
    pub priority: i32,
    /// How current the numbers are.
    pub known: Known,
    /// Nodes with at least one of its cards.
    pub nodes: Option<u32>,
    /// Its cards.
    pub cards: Option<u32>,
    /// Devices published of them.
    pub offered: Option<u32>,
    /// Worth of allocated cards.
    pub allocated: Option<String>,
    /// Worth of free cards unusable by all waiting pods.
    pub unallocatable: Option<String>,
    /// Least number of waiting pods: the status has the largest shapes alone.
    pub waiting_pods: Option<u32>,
    /// Requests of the waiting pods.
    pub unmet_demand: Vec<UnmetDemand>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl PoolView {
    /// Of a pool's object.
    pub fn of(pool: &GpuPool) -> Self {
        let status = pool.status.as_ref();
        let GpuPoolSpec { allocation, placement, priority, .. } = &pool.spec;
        let number = |field: fn(&GpuPoolStatus) -> u32| status.map(field);
        PoolView {
            name: pool.metadata.name.clone().unwrap_or_default(),
            allocation: *allocation,
            placement: placement.clone(),
            priority: *priority,
            known: Known::of(
                pool.metadata.generation,
                status.map(|status| (status.observed_generation, &*status.conditions)),
            ),
            nodes: number(|status| status.nodes),
            cards: number(|status| status.cards),
            offered: number(|status| status.offered),
            allocated: status.map(|status| status.allocated.clone()),
            unallocatable: status.map(|status| status.unallocatable.clone()),
            waiting_pods: number(|status| {
                status.unmet_demand.iter().fold(0, |sum, demand| sum.saturating_add(demand.pods))
            }),
            unmet_demand: status.map(|status| status.unmet_demand.clone()).unwrap_or_default(),
            conditions: status.map(|status| status.conditions.clone()).unwrap_or_default(),
        }
    }

    /// The condition for the desired state.
    pub fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.r#type == condition::READY)
    }

    /// Whether the pool is known to be in the desired state.
    pub fn is_ready(&self) -> bool {
        self.known == Known::Current && self.ready().is_some_and(|condition| condition.status == "True")
    }

    /// Why not, in one word or a few.
    pub fn state(&self) -> String {
        self.known.state(self.ready())
    }
}

/// A node of a pool.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOfPool {
    /// Cards of the node in the pool.
    pub cards: BTreeSet<PciBusId>,
    /// Cards selected by the pool, but decided by another one.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub outranked: BTreeSet<PciBusId>,
    /// Devices no longer offered, ending with their claims.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub waits_for: BTreeSet<String>,
    /// Why the node cannot use the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The nodes of the pool: by the reports, and where a node has none, by the attribute of its devices.
pub fn nodes_of_pool<'s>(
    pool: &str,
    slices: impl Iterator<Item = &'s ResourceSlice>,
    reports: &BTreeMap<&str, Report>,
) -> BTreeMap<String, NodeOfPool> {
    let mut nodes: BTreeMap<String, NodeOfPool> = BTreeMap::new();
    for (node, report) in reports {
        let mut found = NodeOfPool {
            error: report.report.pools.get(pool).and_then(|said| said.error.clone()),
            ..NodeOfPool::default()
        };
        for (address, card) in &report.report.cards {
            if card.pool.as_deref() == Some(pool) {
                found.cards.insert(*address);
                found.waits_for.extend(card.waits_for.iter().cloned());
            } else if card.outranked.iter().any(|name| name == pool) {
                found.outranked.insert(*address);
            }
        }
        if found != NodeOfPool::default() {
            nodes.insert((*node).to_owned(), found);
        }
    }
    for slice in slices {
        let Some(node) = slice.spec.node_name.as_deref().filter(|node| !reports.contains_key(node)) else {
            continue;
        };
        for device in slice.spec.devices.iter().flatten() {
            let attributes = device.attributes.as_ref();
            let named = attributes.and_then(|all| all.get(attribute::GPU_POOL)?.string.as_deref());
            if let (Some(name), Ok(device)) = (named, device.name.parse::<DeviceName>())
                && name == pool
            {
                nodes.entry(node.to_owned()).or_default().cards.insert(device.card());
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(generation: i64, status: serde_json::Value) -> PoolView {
        let pool: GpuPool = serde_json::from_value(json!({
            "apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool",
            "metadata": { "name": "a", "generation": generation }, "spec": {}, "status": status,
        }))
        .unwrap();
        PoolView::of(&pool)
    }

    #[test]
    fn how_current_a_status_is() {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "AsWanted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = |observed: i64| json!({ "observedGeneration": observed, "conditions": [ready] });
        let state = |view: &PoolView| (view.state(), view.is_ready());
        assert_eq!(state(&pool(2, status(2))), ("AsWanted".to_owned(), true));
        assert_eq!(state(&pool(2, status(1))), ("AsWanted (old)".to_owned(), false));
        assert_eq!(state(&pool(2, json!(null))), ("no status".to_owned(), false));
        assert_eq!(pool(2, json!({})).known, Known::None);
    }
}
