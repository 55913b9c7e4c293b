//! Summaries of GPU pools.

use std::collections::BTreeMap;

use tessera_allocator::claim::{Ask, Claim, DeviceRequest, Request};
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::Key;
use tessera_placement::demand::Demand;

use crate::state::State;
use crate::summary::{self, PoolSummary, Shape};
use crate::world::World;
use crate::{nodes, passed_by, unplaced};

/// Limit on shapes of unmet demand in a pool's status.
const MOST_SHAPES: usize = 16;

/// Limit on shapes of unmet demand matched to pools: each match may scan all nodes.
const MOST_ASKED: usize = 256;

/// The summary of each GpuPool reported by a node.
pub(crate) fn pools(state: &mut State) -> BTreeMap<String, PoolSummary> {
    let mut pools = summary::of_fleet(&mut state.world.fleet, &state.world.cluster, &state.world.driver);
    state.unplaced.pools_by_shape.clear();
    for (text, pods, example) in unmet(state) {
        let Some(pod) = state.world.cluster.objects().pods.get(&example).cloned() else { continue };
        let Ok(demand) = Demand::of(state.world.cluster.objects(), &pod) else { continue };
        let asked = nodes::pools_asked(&mut state.world, &demand);
        for pool in &asked {
            pools.entry(pool.clone()).or_default().unmet.push(Shape { text: text.clone(), pods });
        }
        state.unplaced.pools_by_shape.insert(text, asked);
    }
    for (resource, class) in unprovided(&state.world) {
        for pool in nodes::pools_with(&mut state.world, |world, node| has_device_of(world, &class, node)) {
            pools.entry(pool).or_default().unprovided.insert(resource.clone());
        }
    }
    for (pool, priority) in passed_by::passed_by(state) {
        pools.entry(pool).or_default().passed_by = Some(priority);
    }
    for summary in pools.values_mut() {
        summary.unmet.sort_by_key(|shape| std::cmp::Reverse(shape.pods));
        summary.unmet.truncate(MOST_SHAPES);
    }
    pools
}

/// Unmet demand by short description, with the number of pods and an example pod; most pods first.
fn unmet(state: &mut State) -> Vec<(String, u32, Key)> {
    unplaced::look_at_unplaced(&state.world, &mut state.unplaced);
    let mut shapes: BTreeMap<&str, (u32, &Key)> = BTreeMap::new();
    let ours = state.waits.pods().filter_map(|key| Some((key, state.waits.shape_text(key)?)));
    let ours = ours.filter(|(key, _)| state.ledger.pods.proposal(key).is_none());
    // Includes open pods listed as waiting only because managed cards exist.
    let others = unplaced::unplaced(&state.world, &state.ledger, &state.waits, &state.unplaced)
        .filter(|(key, _)| state.waits.shape_text(key).is_none());
    for (key, text) in ours.chain(others) {
        shapes.entry(text).or_insert((0, key)).0 += 1;
    }
    let mut shapes: Vec<_> = shapes.into_iter().collect();
    shapes.sort_by_key(|(_, (pods, _))| std::cmp::Reverse(*pods));
    shapes.truncate(MOST_ASKED);
    shapes.into_iter().map(|(text, (pods, key))| (text.to_owned(), pods, key.clone())).collect()
}

/// Extended resources of DeviceClasses, each with its class, if all cards are managed: kube-scheduler cannot provide them.
fn unprovided(world: &World) -> Vec<(String, String)> {
    let mut cards =
        world.fleet.nodes().flat_map(|node| node.report.iter()).flat_map(|(_, report)| report.cards.values());
    if !cards.all(|card| card.allocation == Allocation::Managed) {
        return Vec::new();
    }
    let classes = world.cluster.objects().classes.values();
    let named = classes.filter_map(|class| {
        let resource = class.spec.as_ref()?.extended_resource_name.clone()?;
        Some((resource, class.metadata.name.clone()?))
    });
    named.collect()
}

/// Whether the node has a device of the class, free or not.
fn has_device_of(world: &mut World, class: &str, node: &str) -> bool {
    let Some(node) = world.cluster.objects().node(node) else {
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
    world.cluster.has_what_is_asked(node, claims, &world.driver, &mut world.asker).unwrap_or(false)
}
